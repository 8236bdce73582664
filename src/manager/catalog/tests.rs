use super::*;
use crate::limits::Limits;

fn server(name: &str) -> ServerKey {
    ServerKey(name.into())
}

fn limits() -> Limits {
    Limits::DEFAULT
}

fn entry(name: &str) -> String {
    format!(
        r#"{{"name":"{name}","description":"made","inputSchema":{{"type":"object","properties":{{}}}}}}"#
    )
}

fn page(names: &[&str], cursor: Option<&str>) -> String {
    let entries: Vec<String> = names.iter().map(|name| entry(name)).collect();
    let cursor = cursor.map_or(String::new(), |cursor| {
        format!(r#","nextCursor":"{cursor}""#)
    });
    format!(r#"{{"tools":[{}]{cursor}}}"#, entries.join(","))
}

/// Walks over pages that `server` gives for parameters; how many were asked for.
fn walk(mut answer: impl FnMut(Option<&str>) -> String) -> (ListWalk, usize) {
    let mut walk = ListWalk::new(&server("s"), PagedList::Tools, &limits());
    let mut params = None;
    let mut requests = 0;
    loop {
        requests += 1;
        match walk.take(&answer(params.as_deref())) {
            WalkStep::Next(next) => params = Some(next),
            WalkStep::Done => return (walk, requests),
        }
    }
}

fn set_of(walk: ListWalk) -> (ToolSet, Vec<ServerDiagnostic>) {
    let (entries, diagnostics) = walk.end();
    (ToolSet::read(&entries, false, &limits()), diagnostics)
}

fn names(tools: &[Tool]) -> Vec<&str> {
    tools.iter().map(Tool::name).collect()
}

/// As `server__tool`, which is enough here.
fn publish(catalog: &mut Catalog, key: &str, tools: Vec<Tool>) -> Option<Difference> {
    let ticket = catalog.begin(&server(key));
    publish_with(catalog, key, ticket, tools)
}

fn publish_with(
    catalog: &mut Catalog,
    key: &str,
    ticket: WalkTicket,
    tools: Vec<Tool>,
) -> Option<Difference> {
    let name = |own: &[&str]| own.iter().map(|name| format!("{key}__{name}")).collect();
    let shows = |name: &str| name != "hidden";
    catalog.publish(&server(key), ticket, tools, shows, |_| None, name)
}

fn tools(of: &[&str]) -> Vec<Tool> {
    let raw: Vec<Box<str>> = of.iter().map(|name| entry(name).into()).collect();
    ToolSet::read(&raw, false, &limits()).tools
}

fn shown(catalog: &Catalog) -> Vec<&str> {
    catalog.tools().map(|(name, _)| name).collect()
}

/// c18: the same cursor for ever.
#[test]
fn the_same_cursor_ends_the_walk() {
    let (walk, requests) = walk(|_| page(&["a", "b"], Some("8")));
    assert_eq!(requests, 2);
    let (set, diagnostics) = set_of(walk);
    assert_eq!(names(&set.tools), ["a", "b"]);
    assert_eq!(diagnostics.len(), 1);
    assert_eq!(
        diagnostics[0].message,
        "tools/list: cursor repeated after 2 pages"
    );
    assert_eq!(
        set.remarks.len(),
        1,
        "one for the repetitions, not one each"
    );
}

/// c18: cursors in a circle.
#[test]
fn a_circle_of_cursors_ends_the_walk() {
    let (walk, requests) = walk(|params| match params {
        None => page(&["a"], Some("A")),
        Some(r#"{"cursor":"A"}"#) => page(&["b"], Some("B")),
        Some(_) => page(&["c"], Some("A")),
    });
    assert_eq!(requests, 3);
    let (set, diagnostics) = set_of(walk);
    assert_eq!(names(&set.tools), ["a", "b", "c"]);
    assert_eq!(diagnostics[0].code, Some("cursor-repeated"));
}

/// c18: ever new cursors.
#[test]
fn pages_are_bounded() {
    let mut fresh = 0;
    let (walk, requests) = walk(|_| {
        fresh += 1;
        page(&["t"], Some(&fresh.to_string()))
    });
    assert_eq!(requests, limits().list_pages_max);
    let (set, diagnostics) = set_of(walk);
    assert_eq!(names(&set.tools), ["t"]);
    assert_eq!(
        diagnostics[0].message,
        "tools/list: more pages than the limit, 100"
    );
}

#[test]
fn cursors_are_given_back_as_spelled_and_empty_ones_end() {
    let (_, requests) = walk(|params| match params {
        None => r#"{"nextCursor":"k\u003a8 ","tools":[]}"#.to_owned(),
        Some(params) => {
            assert_eq!(params, r#"{"cursor":"k\u003a8 "}"#);
            page(&[], Some(""))
        }
    });
    assert_eq!(requests, 2);
    for (cursor, code) in [("null", None), ("7", Some("bad-cursor"))] {
        let (walk, requests) = walk(|_| format!(r#"{{"tools":[],"nextCursor":{cursor}}}"#));
        assert_eq!(requests, 1);
        assert_eq!(walk.end().1.first().and_then(|one| one.code), code);
    }
}

#[test]
fn a_result_that_is_no_page_keeps_what_was_read() {
    let (walk, requests) = walk(|params| match params {
        None => page(&["a"], Some("1")),
        Some(_) => r#"{"tools":{}}"#.to_owned(),
    });
    assert_eq!(requests, 2);
    let (entries, diagnostics) = walk.end();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        diagnostics[0].message,
        "tools/list gave a result without an array tools (found {})"
    );
}

#[test]
fn entries_stay_as_spelled() {
    let raw = r#"{"name":"a","inputSchema":{"type":"object", "maximum":1.0e+2},"_meta":{"n":12345678901234567890},"x":"\u00e9"}"#;
    let (walk, _) = walk(|_| format!(r#"{{"tools":[ {raw} ]}}"#));
    let (set, _) = set_of(walk);
    assert_eq!(set.tools[0].raw(), raw);
    assert!(set.remarks.is_empty());
    for list in [
        PagedList::Resources,
        PagedList::ResourceTemplates,
        PagedList::Prompts,
    ] {
        let mut walk = ListWalk::new(&server("s"), list, &limits());
        let step = walk.take(&format!(r#"{{"{}":[{raw}]}}"#, list.member()));
        assert_eq!(step, WalkStep::Done);
        assert_eq!(*walk.end().0[0], *raw);
    }
}

/// c20: 5,000 tools in one page and in fifty, and what is above the limit.
#[test]
fn many_tools_keep_their_order_and_the_surplus_is_counted() {
    let all: Vec<String> = (0..5_000).map(|i| format!("t{}", 4_999 - i)).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let (one, requests) = walk(|_| page(&all, None));
    assert_eq!(requests, 1);
    let mut chunks = all.chunks(100).enumerate();
    let (fifty, requests) = walk(|_| {
        let (at, chunk) = chunks.next().expect("fifty");
        page(chunk, (at < 49).then(|| at.to_string()).as_deref())
    });
    assert_eq!(requests, 50);
    for walk in [one, fifty] {
        let (set, diagnostics) = set_of(walk);
        assert_eq!(names(&set.tools), all);
        assert!(diagnostics.is_empty() && set.remarks.is_empty());
    }
    let (walk, requests) = walk(|_| page(&vec!["x"; 10_050], Some("more")));
    assert_eq!(requests, 1);
    let (entries, diagnostics) = walk.end();
    assert_eq!(entries.len(), 10_000);
    assert_eq!(diagnostics.len(), 1);
    assert_eq!(
        diagnostics[0].message,
        "too many tools: at least 10050, limit 10000; the rest is left out"
    );
}

/// c20: work is counted in allocations and their bytes, and in questions asked.
#[test]
fn work_grows_with_the_number_of_tools_and_no_faster() {
    let measure = |count: usize| {
        let all: Vec<String> = (0..count).map(|i| format!("tool_{i:05}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let page = page(&all, None);
        let asked = std::cell::Cell::new(0);
        let info = allocation_counter::measure(|| {
            let (set, _) = set_of(walk(|_| page.clone()).0);
            let mut catalog = Catalog::new();
            let key = server("s");
            let ticket = catalog.begin(&key);
            let shows = |_: &str| {
                asked.set(asked.get() + 1);
                true
            };
            let name = |own: &[&str]| own.iter().map(|name| (*name).to_owned()).collect();
            catalog.publish(&key, ticket, set.tools, shows, |_| None, name);
            assert_eq!(catalog.tools().count(), count);
        });
        assert_eq!(asked.get(), count);
        assert!(info.bytes_max / (count as u64) < entry("tool_00000").len() as u64 * 3 + 1_024);
        info
    };
    let (five, ten) = (measure(5_000), measure(10_000));
    assert!(
        ten.count_total * 10 <= five.count_total * 25,
        "{five:?} {ten:?}"
    );
    assert!(
        ten.bytes_total * 10 <= five.bytes_total * 25,
        "{five:?} {ten:?}"
    );
}

/// c22.
#[test]
fn one_bad_tool_costs_one_tool() {
    let (walk, _) = walk(|_| {
        let union =
            r#"{"oneOf":[{"type":"object","required":["a"]},{"type":"object","required":["b"]}]}"#;
        format!(
            r#"{{"tools":[{},{{"name":"rootOneOf","inputSchema":{union}}},
            {{"name":"noType","inputSchema":{{"properties":{{"q":{{"type":"string"}}}}}}}},
            {{"name":"emptySchema","inputSchema":{{}}}},{{"name":"noSchema"}},
            {{"name":"nullSchema","inputSchema":null}},{{"name":"arrayRoot","inputSchema":{{"type":"array"}}}},
            {{"name":"trueSchema","inputSchema":true}},{{"inputSchema":{{"type":"object"}}}},
            {{"name":"","inputSchema":{{"type":"object"}}}},{{"name":7,"inputSchema":{{"type":"object"}}}},
            "not a tool",{}]}}"#,
            entry("good1"),
            entry("good2")
        )
    });
    let (set, _) = set_of(walk);
    let kept = [
        "good1",
        "rootOneOf",
        "noType",
        "emptySchema",
        "noSchema",
        "good2",
    ];
    assert_eq!(names(&set.tools), kept);
    let raw: Vec<&str> = set.tools.iter().map(Tool::raw).collect();
    assert_eq!(raw[0], entry("good1"));
    assert_eq!(
        raw[1],
        r#"{"name":"rootOneOf","inputSchema":{"type":"object","properties":{},"oneOf":[{"type":"object","required":["a"]},{"type":"object","required":["b"]}]}}"#
    );
    assert_eq!(
        raw[2],
        r#"{"name":"noType","inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}"#
    );
    let empty = r#"{"type":"object","properties":{}}"#;
    assert_eq!(
        raw[3],
        format!(r#"{{"name":"emptySchema","inputSchema":{empty}}}"#)
    );
    assert_eq!(
        raw[4],
        format!(r#"{{"name":"noSchema","inputSchema":{empty}}}"#)
    );
    assert_eq!(set.tools[4].input_schema(), empty);
    let said: Vec<(&str, Option<&str>)> = set
        .remarks
        .iter()
        .map(|remark| (remark.code, remark.tool.as_deref()))
        .collect();
    let (left_out, repaired) = ("tool-left-out", "tool-repaired");
    assert_eq!(
        said,
        [
            (repaired, Some("rootOneOf")),
            (repaired, Some("noType")),
            (repaired, Some("emptySchema")),
            (repaired, Some("noSchema")),
            (left_out, Some("nullSchema")),
            (left_out, Some("arrayRoot")),
            (left_out, Some("trueSchema")),
            (left_out, None),
            (left_out, None),
            (left_out, None),
            (left_out, None),
        ]
    );
    assert!(set.remarks.iter().all(|remark| {
        let tool = remark.tool.as_deref().unwrap_or("");
        remark.message.contains(tool)
    }));
}

/// g05: what the repair adds makes nothing valid that was not, nor the other way round.
#[test]
fn a_repaired_schema_says_what_it_said() {
    let raw = r#"{"name":"u","inputSchema":{"oneOf":[{"type":"object","required":["a"]},{"type":"object","required":["b"]}]},"outputSchema":{"type":"object","required":["r"]}}"#;
    let (tool, _) = Tool::read(raw, false, &limits());
    let tool = tool.expect("repaired");
    let input = tool.input_check(&limits()).expect("usable");
    assert_eq!(input.check(r#"{"a":1}"#), Ok(()));
    assert!(input.check(r#"{"a":1,"b":1}"#).is_err());
    assert!(input.check("{}").is_err());
    let output = tool
        .output_check(&limits())
        .expect("there")
        .expect("usable");
    assert!(output.check("{}").is_err(), "found behind the repair");
    let first = raw.replacen(
        r#"{"name":"u","#,
        r#"{"outputSchema":{"type":"object"},"name":"u","#,
        1,
    );
    let (tool, _) = Tool::read(&first, false, &limits());
    assert!(tool.expect("repaired").output_schema().is_some());
}

#[test]
fn what_is_too_big_or_unusable_is_named() {
    let limits = limits();
    let long = |bytes: usize| "x".repeat(bytes);
    let message = |raw: &str| {
        let (tool, remarks) = Tool::read(raw, false, &limits);
        assert!(tool.is_none(), "{raw:.60}");
        remarks[0].message.clone()
    };
    let raw = format!(
        r#"{{"name":"{}","inputSchema":{{"type":"object"}}}}"#,
        long(1_025)
    );
    assert!(
        message(&raw)
            .starts_with("a tool is left out: its name is 1025 bytes long, limit 1024: xx")
    );
    let raw = format!(r#"{{"name":"t","description":"{}"}}"#, long(16_385));
    assert_eq!(
        message(&raw),
        "tool t is left out: description too large: 16385 bytes, limit 16384"
    );
    for schema in ["inputSchema", "outputSchema"] {
        let raw = format!(
            r#"{{"name":"t","{schema}":{{"type":"object","title":"{}"}}}}"#,
            long(262_144)
        );
        assert!(message(&raw).starts_with(&format!("tool t is left out: {schema} too large: ")));
    }
    assert_eq!(
        message(r#"{"name":"t","description":7}"#),
        "tool t is left out: description is no string (found 7)"
    );
    assert_eq!(
        message(r#"{"name":"t","inputSchema":{"type":["object","null"]}}"#),
        "tool t is left out: inputSchema must be of type object (found [\"object\",\"null\"])"
    );
    assert_eq!(
        message(
            r#"{"name":"\u001b[2J","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}"#
        ),
        "tool \\u{1b}[2J is left out: it can only be called as a task"
    );
    for support in ["optional", "forbidden"] {
        let raw = format!(
            r#"{{"name":"t","inputSchema":{{"type":"object"}},"execution":{{"taskSupport":"{support}"}}}}"#
        );
        assert!(Tool::read(&raw, false, &limits).0.is_some());
    }
}

#[test]
fn what_just_fits_is_kept() {
    let limits = limits();
    let schema = |bytes: usize| {
        let rest = r#"{"type":"object","title":""}"#.len();
        let title = "x".repeat(bytes - rest);
        format!(r#"{{"type":"object","title":"{title}"}}"#)
    };
    let raw = format!(
        r#"{{"name":"{}","description":"{}","inputSchema":{},"outputSchema":{}}}"#,
        "n".repeat(limits.tool_name_bytes_max),
        "d".repeat(limits.tool_description_bytes_max),
        schema(limits.tool_schema_bytes_max),
        schema(limits.tool_schema_bytes_max),
    );
    let (tool, remarks) = Tool::read(&raw, false, &limits);
    assert!(tool.is_some(), "{remarks:?}");
    let over = raw.replacen("\"title\":\"", "\"title\":\"x", 1);
    assert!(Tool::read(&over, false, &limits).0.is_none());
}

#[test]
fn schemas_that_cannot_be_used_leave_the_tool() {
    let limits = limits();
    let raw = r##"{"name":"t","inputSchema":{"type":"object","properties":{"x":{"$ref":"#/$defs/No"}}},"outputSchema":{"$schema":"urn:own","type":"object"}}"##;
    let (tool, remarks) = Tool::read(raw, false, &limits);
    let tool = tool.expect("usable all the same");
    assert!(remarks.is_empty(), "nothing is compiled at listing");
    assert!(tool.input_check(&limits).is_err());
    assert!(tool.output_check(&limits).expect("there").is_err());
    let said: Vec<String> = tool
        .unchecked(&limits)
        .into_iter()
        .map(|one| one.message)
        .collect();
    assert_eq!(said.len(), 2);
    assert!(
        said[0].starts_with("inputSchema of tool t: schema is invalid: "),
        "{said:?}"
    );
    assert_eq!(
        said[1],
        "outputSchema of tool t: schema dialect urn:own is not supported; nothing is checked against it"
    );
    let (tool, remarks) = Tool::read(
        r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":true}"#,
        false,
        &limits,
    );
    assert!(tool.expect("usable").output_check(&limits).is_none());
    assert_eq!(remarks[0].code, "schema-unusable");
}

/// T38.
#[test]
fn arguments_that_travel_in_headers() {
    let limits = limits();
    let of = |schema: &str, mirrored| {
        let raw =
            format!(r#"{{"name":"t","inputSchema":{{"type":"object","properties":{schema}}}}}"#);
        Tool::read(&raw, mirrored, &limits)
    };
    let bad = r#"{"a":{"type":"number","x-mcp-header":"A"}}"#;
    let (tool, remarks) = of(bad, true);
    assert!(tool.is_none());
    assert!(
        remarks[0].message.contains("x-mcp-header"),
        "{}",
        remarks[0].message
    );
    assert!(of(bad, false).0.is_some(), "elsewhere it means nothing");
    let good = r#"{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"object","properties":{"c":{"type":"integer","x-mcp-header":"C"}}},"d":{"type":"boolean","x-mcp-header":"D"}}"#;
    let tool = of(good, true).0.expect("good");
    let values = |raw: &str| -> Vec<(String, String)> {
        let values = tool.header_values(Some(raw)).into_iter();
        values
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    };
    let pair = |name: &str, value: &str| (format!("Mcp-Param-{name}"), value.to_owned());
    let mut all = values(r#"{"a":"\u00e9 x","b":{"c":-5},"d":true}"#);
    all.sort();
    assert_eq!(all, [pair("A", "é x"), pair("C", "-5"), pair("D", "true")]);
    assert_eq!(values(r#"{"a":null,"b":{},"d":"true"}"#), []);
    assert!(tool.header_values(None).is_empty());
}

#[test]
fn two_tools_of_one_name_are_one() {
    let other = r#"{"name":"a","inputSchema":{"type":"object","title":"other"}}"#;
    let raw: Vec<Box<str>> = [&entry("a"), other, &entry("b"), &entry("a")]
        .map(|raw: &str| raw.into())
        .into();
    let set = ToolSet::read(&raw, false, &limits());
    assert_eq!(names(&set.tools), ["a", "b"]);
    assert_eq!(set.tools[0].raw(), entry("a"));
    let codes: Vec<&str> = set.remarks.iter().map(|remark| remark.code).collect();
    assert_eq!(codes, ["tool-left-out", "tools-repeated"]);
}

#[test]
fn ready_servers_are_shown_while_others_are_not() {
    let mut catalog = Catalog::new();
    let slow = catalog.begin(&server("slow"));
    publish(&mut catalog, "b", tools(&["y", "hidden", "x"])).expect("published");
    assert_eq!(shown(&catalog), ["b__x", "b__y"]);
    assert_eq!(catalog.tools_of(&server("slow")).map(<[_]>::len), None);
    assert_eq!(catalog.filtered(&server("b")), 1);
    let own: Vec<&str> = catalog
        .tools_of(&server("b"))
        .expect("listed")
        .iter()
        .map(|(_, tool)| tool.name())
        .collect();
    assert_eq!(own, ["y", "x"], "as the server lists them");
    publish_with(&mut catalog, "slow", slow, tools(&["z"])).expect("published");
    publish(&mut catalog, "A", tools(&["q"])).expect("published");
    assert_eq!(shown(&catalog), ["A__q", "b__x", "b__y", "slow__z"]);
    let found = catalog.find("b__y").expect("shown");
    assert_eq!((found.server, found.tool.name()), (&server("b"), "y"));
    assert!(catalog.find("b__hidden").is_none() && catalog.find("y").is_none());
    catalog.remove(&server("b"));
    assert_eq!(shown(&catalog), ["A__q", "slow__z"]);
}

#[test]
fn stale_walks_are_not_published() {
    let mut catalog = Catalog::new();
    let stale = catalog.begin(&server("s"));
    catalog.invalidate(&server("s"));
    assert_eq!(
        publish_with(&mut catalog, "s", stale, tools(&["old"])),
        None
    );
    assert_eq!(catalog.generation(), 0);
    publish(&mut catalog, "s", tools(&["new"])).expect("published");
    catalog.invalidate(&server("s"));
    assert_eq!(shown(&catalog), ["s__new"], "what is shown stays");
}

#[test]
fn a_new_listing_tells_what_changed() {
    let mut catalog = Catalog::new();
    let key = server("s");
    let first = publish(&mut catalog, "s", tools(&["a", "b"])).expect("published");
    assert_eq!(first.added, ["a", "b"]);
    assert_eq!(drift(&key, &first), None, "new is not changed");
    let before = (catalog.generation(), catalog.generation_of(&key));
    let same = publish(&mut catalog, "s", tools(&["a", "b"])).expect("published");
    assert_eq!(same, Difference::default());
    assert_eq!((catalog.generation(), catalog.generation_of(&key)), before);
    let without = publish(&mut catalog, "s", tools(&["a", "c"])).expect("published");
    assert_eq!(
        (without.added, without.removed),
        (vec!["c".to_owned()], vec!["b".to_owned()])
    );
    assert_eq!(catalog.generation_of(&key), before.1 + 1);
    // One that goes, and comes back as another, has changed.
    let other = entry("b").replace("made", "made to harm");
    let back = ToolSet::read(&[entry("a").into(), other.into()], false, &limits()).tools;
    let back = publish(&mut catalog, "s", back).expect("published");
    assert_eq!(back.changed, ["b"]);
    let told = drift(&key, &back).expect("a diagnostic");
    assert_eq!(told.message, "description or schema changed: b");
    assert_eq!(
        (told.code, told.tool.as_deref()),
        (Some("tool-changed"), Some("b"))
    );
    for raw in [
        entry("a").replace(r#""properties":{}"#, r#""properties":{"x":{}}"#),
        entry("a").replace(r#""description""#, r#""outputSchema":{},"description""#),
    ] {
        let changed = ToolSet::read(&[raw.into()], false, &limits()).tools;
        assert_eq!(
            publish(&mut catalog, "s", changed)
                .expect("published")
                .changed,
            ["a"]
        );
    }
    let annotated = entry("a").replacen('{', r#"{"annotations":{},"outputSchema":{},"#, 1);
    let annotated = ToolSet::read(&[annotated.into()], false, &limits()).tools;
    assert!(
        publish(&mut catalog, "s", annotated)
            .expect("published")
            .changed
            .is_empty()
    );
}

#[test]
fn of_two_servers_tools_with_one_shown_name_the_first_servers_is_reached() {
    let mut catalog = Catalog::new();
    let own = |catalog: &mut Catalog, key: &str, of: &[&str]| {
        let (key, ticket) = (server(key), catalog.begin(&server(key)));
        let names = |own: &[&str]| own.iter().map(|&name| name.to_owned()).collect();
        catalog.publish(&key, ticket, tools(of), |_| true, |_| None, names);
    };
    let whose = |catalog: &Catalog| {
        let found = catalog.find("t").expect("a tool");
        found.server.as_str().to_owned()
    };
    own(&mut catalog, "b", &["t"]);
    own(&mut catalog, "c", &["t"]);
    assert_eq!(whose(&catalog), "b");
    own(&mut catalog, "a", &["u", "t"]);
    assert_eq!(whose(&catalog), "a", "whoever was there first");
    own(&mut catalog, "a", &["u"]);
    assert_eq!(whose(&catalog), "b", "it comes out of the shadow");
    catalog.remove(&server("b"));
    assert_eq!(whose(&catalog), "c");
    catalog.remove(&server("c"));
    assert!(catalog.find("t").is_none());
}

#[test]
fn of_two_tools_with_one_shown_name_the_first_is_reached() {
    let mut catalog = Catalog::new();
    for key in ["a", "b"] {
        let ticket = catalog.begin(&server(key));
        let name = |_: &[&str]| vec!["same".to_owned()];
        catalog.publish(
            &server(key),
            ticket,
            tools(&["t"]),
            |_| true,
            |_| None,
            name,
        );
    }
    assert_eq!(catalog.find("same").expect("shown").server, &server("a"));
    catalog.remove(&server("b"));
    assert_eq!(shown(&catalog), ["same"]);
}

#[test]
fn a_refused_tool_is_not_shown_and_keeps_its_name() {
    let mut catalog = Catalog::new();
    let mut publish = |refused: &str| {
        let ticket = catalog.begin(&server("s"));
        let name = |own: &[&str]| own.iter().map(|name| format!("s__{name}")).collect();
        let refusal = |name: &str| (name == refused).then(|| "it has changed".to_owned());
        let of = tools(&["a", "b"]);
        let difference = catalog.publish(&server("s"), ticket, of, |_| true, refusal, name);
        let shown: Vec<String> = shown(&catalog).into_iter().map(str::to_owned).collect();
        let why = catalog.refusal("s__b").map(|(_, why)| why.to_owned());
        (
            difference.expect("published"),
            shown,
            why,
            catalog.generation(),
        )
    };
    let (_, shown, why, generation) = publish("b");
    assert_eq!(shown, ["s__a"]);
    assert_eq!(why.as_deref(), Some("it has changed"));
    let (difference, _, _, same) = publish("b");
    assert_eq!((difference, same), (Difference::default(), generation));
    let (difference, shown, why, _) = publish("nothing");
    assert_eq!((difference.added, why), (vec!["b".to_owned()], None));
    assert_eq!(shown, ["s__a", "s__b"]);
}
