// The servers: how each is started on each of its transports, and what a client has to see of it.
import fs from "node:fs";
import path from "node:path";

const here = path.dirname(new URL(import.meta.url).pathname);

/**
 * `[{name, places, tools, calls, resources, reads, prompts, asks}]`.
 *
 * A place is `{name, kind, command, env, path, eras}`: `kind` is the transport; `{port}` in
 * `command` and `env` becomes the port to listen on, `{era}` in the `env` of a stdio server what is
 * asked for; `eras` is what to ask for, with the revision that comes of it.
 */
export function subjects(peers, home) {
  const node = path.join(peers, "bin/node");
  const reference = (name, ...args) => [
    node,
    path.join(peers, `node_modules/@modelcontextprotocol/server-${name}/dist/index.js`),
    ...args,
  ];
  const python = (...args) => [
    path.join(peers, "venv/bin/python"),
    path.join(here, "made_server.py"),
    ...args,
  ];
  const files = path.join(home, "files");
  fs.mkdirSync(files, { recursive: true });
  fs.writeFileSync(path.join(files, "note.txt"), "written before\n");
  // The filesystem server compares real paths.
  const note = path.join(fs.realpathSync(files), "note.txt");

  const old = { auto: "2025-11-25", legacy: "2025-11-25" };
  const both = { auto: "2026-07-28", legacy: "2025-11-25", modern: "2026-07-28" };
  const port = { PORT: "{port}" };
  const spelled = (kind, eras) => ({ name: kind, kind, eras });

  return [
    {
      name: "everything",
      places: [
        { ...spelled("stdio", old), command: reference("everything", "stdio") },
        {
          ...spelled("streamable-http", old),
          command: reference("everything", "streamableHttp"),
          env: port,
          path: "/mcp",
        },
        {
          ...spelled("sse", old),
          command: reference("everything", "sse"),
          env: port,
          path: "/sse",
        },
      ],
      tools: [
        "echo",
        "get-annotated-message",
        "get-env",
        "get-resource-links",
        "get-resource-reference",
        "get-structured-content",
        "get-sum",
        "get-tiny-image",
        "gzip-file-as-resource",
        "toggle-simulated-logging",
        "toggle-subscriber-updates",
        "trigger-long-running-operation",
      ],
      // Can only be called as tasks.
      leftOut: ["simulate-research-query"],
      calls: [
        {
          tool: "echo",
          words: ["message=hi there"],
          gives: (r) => r.content[0].text.includes("hi there"),
        },
        { tool: "get-sum", args: { a: 20, b: 22 }, gives: (r) => r.content[0].text.includes("42") },
        {
          tool: "get-structured-content",
          args: { location: "New York" },
          gives: (r) => typeof r.structuredContent.temperature === "number",
        },
        {
          tool: "get-tiny-image",
          gives: (r) => r.content.some((b) => b.type === "image" && b.data.length > 100),
        },
        {
          tool: "trigger-long-running-operation",
          args: { duration: 1, steps: 4 },
          gives: (r) => r.content[0].text.includes("completed"),
        },
        { tool: "get-sum", args: { a: "twenty" }, code: 5 },
        { tool: "no-such-tool", code: 5 },
      ],
      resources: 7,
      reads: [
        {
          uri: "demo://resource/static/document/features.md",
          gives: (r) => r.contents[0].text.length > 100,
        },
      ],
      prompts: ["simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"],
      asks: [
        { prompt: "simple-prompt", gives: (r) => r.messages.length > 0 },
        {
          prompt: "args-prompt",
          words: ["city=Turin"],
          gives: (r) => r.messages[0].content.text.includes("Turin"),
        },
      ],
    },
    {
      name: "filesystem",
      places: [{ ...spelled("stdio", old), command: reference("filesystem", files) }],
      tools: [
        "read_file",
        "read_text_file",
        "read_media_file",
        "read_multiple_files",
        "write_file",
        "edit_file",
        "create_directory",
        "list_directory",
        "list_directory_with_sizes",
        "directory_tree",
        "move_file",
        "search_files",
        "get_file_info",
        "list_allowed_directories",
      ],
      calls: [
        {
          tool: "read_text_file",
          words: [`path=${note}`],
          gives: (r) => r.content[0].text === "written before\n",
        },
        {
          tool: "write_file",
          args: { path: path.join(files, "new.txt"), content: "1.0 \u2603" },
          gives: () => fs.readFileSync(path.join(files, "new.txt"), "utf8") === "1.0 \u2603",
        },
        { tool: "read_text_file", args: { path: "/etc/hostname" }, code: 5 },
      ],
    },
    {
      name: "memory",
      places: [
        {
          ...spelled("stdio", old),
          command: reference("memory"),
          env: { MEMORY_FILE_PATH: path.join(home, "memory-{era}.jsonl") },
        },
      ],
      tools: [
        "create_entities",
        "create_relations",
        "add_observations",
        "delete_entities",
        "delete_observations",
        "delete_relations",
        "read_graph",
        "search_nodes",
        "open_nodes",
      ],
      calls: [
        {
          tool: "create_entities",
          args: { entities: [{ name: "span", entityType: "bridge", observations: ["it opens"] }] },
          gives: (r) => JSON.stringify(r.structuredContent).includes("it opens"),
        },
        // Another process, the same file.
        {
          tool: "search_nodes",
          words: ["query=opens"],
          gives: (r) => r.structuredContent.entities[0].name === "span",
        },
      ],
      resources: 1,
      reads: [
        { uri: "memory://knowledge-graph", gives: (r) => r.contents[0].text.includes("span") },
      ],
    },
    {
      name: "python",
      places: [
        { ...spelled("stdio", both), command: python("stdio") },
        {
          ...spelled("streamable-http", both),
          command: python("http", "{port}"),
          path: "/mcp",
        },
        {
          ...spelled("streamable-http", both),
          name: "streamable-http without sessions",
          command: python("stateless", "{port}"),
          path: "/mcp",
        },
        { ...spelled("sse", old), command: python("sse", "{port}"), path: "/sse" },
      ],
      tools: ["echo", "add", "fail"],
      calls: [
        { tool: "echo", words: ["text=a=b c"], gives: (r) => r.content[0].text === "a=b c" },
        { tool: "add", args: { a: 40, b: 2 }, gives: (r) => r.structuredContent.total === 42 },
        { tool: "add", args: { a: "x", b: 2 }, code: 5 },
        { tool: "fail", code: 5 },
      ],
      resources: 1,
      reads: [
        { uri: "made://greeting", gives: (r) => r.contents[0].text === "hello" },
        { uri: "made://people/Ada", gives: (r) => r.contents[0].text === "this is Ada" },
      ],
      prompts: ["ask"],
      asks: [
        {
          prompt: "ask",
          words: ["topic=locks"],
          gives: (r) => r.messages[0].content.text === "Tell me about locks",
        },
      ],
    },
  ].map((subject) => ({ resources: 0, reads: [], prompts: [], asks: [], ...subject }));
}
