//! What the server offers, and everything that can be answered at once: such answers are closures.

use drawspan::codec::json_text::write_string;
use drawspan::local::{
    Content, LocalKind, LocalReply, LocalRequest, Prompt, Registry, RegistryError, Resource,
    ResourceContents, Role, TaskSupport, Template, Tool, match_template,
};
use drawspan::protocol::server::Changing;

use crate::questions;
use crate::samples::{ICONS, JSON_SCHEMA_2020_12, NOTHING, PNG, WAV};

/// All tools, resources, templates and prompts.
///
/// # Errors
/// When two have one name, or a definition is not what clients expect: a mistake in this file.
pub(crate) fn registry() -> Result<Registry, RegistryError> {
    let mut registry = Registry::new();
    registry.declare_changing(Changing {
        tools: true,
        prompts: true,
        resources: true,
    });
    registry.declare_resource_updates();
    registry.declare_completions();
    registry.declare_logging();
    add_contents(&mut registry)?;
    add_slow_tools(&mut registry)?;
    questions::add(&mut registry)?;
    add_task_tools(&mut registry)?;
    add_resources(&mut registry)?;
    add_prompts(&mut registry)?;
    Ok(registry)
}

/// Tools that give a fixed answer. Clients may take the first one of the list for a try.
fn add_contents(registry: &mut Registry) -> Result<(), RegistryError> {
    let simple = Tool::new("test_simple_text", "Gives one text", NOTHING)
        .title("Simple text")
        .icons(ICONS)
        .answered_by(|_| LocalReply::text("This is a simple text response for testing."));
    registry.add_tool(simple)?;
    let image = Content::image(PNG, "image/png");
    registry.add_tool(fixed(
        "test_image_content",
        "Gives a picture",
        vec![image.clone()],
    ))?;
    let audio = Content::audio(WAV, "audio/wav");
    registry.add_tool(fixed("test_audio_content", "Gives a sound", vec![audio]))?;
    let page = ResourceContents::text(
        "test://embedded-resource",
        "text/plain",
        "This is an embedded resource content.",
    );
    let page = Content::resource(&page);
    registry.add_tool(fixed(
        "test_embedded_resource",
        "Gives a resource",
        vec![page],
    ))?;
    let data = ResourceContents::text(
        "test://mixed-content-resource",
        "application/json",
        r#"{"test":"data","value":123}"#,
    );
    let mixed = vec![
        Content::text("Multiple content types test:"),
        image,
        Content::resource(&data),
    ];
    registry.add_tool(fixed(
        "test_multiple_content_types",
        "Gives one of each",
        mixed,
    ))?;
    let failing = Tool::new("test_error_handling", "Fails", NOTHING).answered_by(|_| {
        LocalReply::failed("This tool intentionally returns an error for testing")
    });
    registry.add_tool(failing)?;
    let structured = Tool::new("test_structured_content", "Gives a value", NOTHING)
        .annotations(r#"{"readOnlyHint":true}"#)
        .output_schema(
            r#"{"type":"object","properties":{"celsius":{"type":"number"}},"required":["celsius"]}"#,
        )
        .answered_by(|_| LocalReply::structured("It has 21.5 degrees.", r#"{"celsius":21.5}"#));
    registry.add_tool(structured)?;
    let schema = Tool::new(
        "json_schema_2020_12_tool",
        "Tool with JSON Schema 2020-12 features",
        JSON_SCHEMA_2020_12,
    );
    registry.add_tool(schema.answered_by(|request| LocalReply::text(request.kind.arguments())))?;
    let header = Tool::new(
        "test_custom_header",
        "Takes an argument that a client over HTTP repeats in a header",
        r#"{"type":"object","properties":{"value":{"type":"string","x-mcp-header":"Value"}}}"#,
    );
    registry.add_tool(header.answered_by(|request| {
        let value = request.kind.argument_text("value").unwrap_or_default();
        LocalReply::text(&format!("value: {value}"))
    }))
}

fn fixed(name: &str, description: &str, blocks: Vec<Content>) -> Tool {
    Tool::new(name, description, NOTHING).answered_by(move |_| LocalReply::content(&blocks))
}

/// Tools whose answer takes time or comes with something else: see `work.rs`.
fn add_slow_tools(registry: &mut Registry) -> Result<(), RegistryError> {
    for (name, description) in [
        (
            "test_tool_with_logging",
            "Sends three log messages, 50 ms apart",
        ),
        (
            "test_tool_with_progress",
            "Reports its progress, 50 ms apart",
        ),
        ("test_logging_tool", "Sends one log message"),
        (
            "test_reconnection",
            "Ends its stream before it has an answer; the client has to come back for it",
        ),
        (
            "test_hold",
            "Reports progress once and has no answer: waits to be taken back",
        ),
        (
            "test_held",
            "Tells how many calls of test_hold wait and how many were taken back",
        ),
        (
            "test_trigger_tool_change",
            "Has one tool come or go, and says so",
        ),
        (
            "test_trigger_prompt_change",
            "Says that the list of prompts has changed",
        ),
        (
            "test_trigger_resource_change",
            "Says that the list of resources has changed",
        ),
        (
            "test_trigger_resource_update",
            "Says that test://watched-resource has changed",
        ),
    ] {
        registry.add_tool(Tool::new(name, description, NOTHING))?;
    }
    Ok(())
}

/// Tools that may or must go on as tasks: see `work.rs`.
fn add_task_tools(registry: &mut Registry) -> Result<(), RegistryError> {
    let greet = Tool::new(
        "greet",
        "Greets at once, never as a task",
        r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#,
    );
    registry.add_tool(
        greet.answered_by(|request| match request.kind.argument_text("name") {
            Some(name) => LocalReply::text(&format!("Hello, {name}!")),
            None => LocalReply::failed("name must be a string"),
        }),
    )?;
    let slow = Tool::new(
        "slow_compute",
        "Takes its time",
        r#"{"type":"object","properties":{"seconds":{"type":"number","minimum":0},"label":{"type":"string"}},"required":["seconds"]}"#,
    );
    registry.add_tool(slow.tasks(TaskSupport::Optional))?;
    let delete = Tool::new(
        "confirm_delete",
        "Asks before it (does not) delete a file",
        r#"{"type":"object","properties":{"filename":{"type":"string"}},"required":["filename"]}"#,
    );
    registry.add_tool(delete.tasks(TaskSupport::Optional))?;
    for (name, description, support) in [
        (
            "failing_job",
            "A task that completes with a failure",
            TaskSupport::Required,
        ),
        (
            "protocol_error_job",
            "A task that fails",
            TaskSupport::Optional,
        ),
        (
            "multi_input",
            "A task that asks two things at once",
            TaskSupport::Optional,
        ),
        (
            "test_tool_with_task",
            "Asks first, then goes on as a task",
            TaskSupport::Required,
        ),
    ] {
        registry.add_tool(Tool::new(name, description, NOTHING).tasks(support))?;
    }
    Ok(())
}

fn add_resources(registry: &mut Registry) -> Result<(), RegistryError> {
    let text = Resource::new("test://static-text", "Static text")
        .description("A text that never changes")
        .mime_type("text/plain");
    registry.add_resource(text.answered_by(|request| {
        let text = "This is the content of the static text resource.";
        contents(ResourceContents::text(
            request.kind.name(),
            "text/plain",
            text,
        ))
    }))?;
    let binary = Resource::new("test://static-binary", "Static picture")
        .description("One red pixel")
        .mime_type("image/png");
    registry.add_resource(binary.answered_by(|request| {
        contents(ResourceContents::blob(
            request.kind.name(),
            "image/png",
            PNG,
        ))
    }))?;
    let watched = Resource::new("test://watched-resource", "Watched text")
        .description("Changes when test_trigger_resource_update is called")
        .mime_type("text/plain");
    registry.add_resource(watched.answered_by(|request| {
        let text = "Watched resource content";
        contents(ResourceContents::text(
            request.kind.name(),
            "text/plain",
            text,
        ))
    }))?;
    let template = Template::new("test://template/{id}/data", "Data by id")
        .description("Tells the id that it was asked for")
        .mime_type("application/json");
    registry.add_template(template.answered_by(read_template))
}

fn contents(part: ResourceContents) -> LocalReply {
    LocalReply::contents(&[part])
}

fn read_template(request: &LocalRequest) -> LocalReply {
    let LocalKind::ReadResource {
        uri,
        template: Some(template),
    } = &request.kind
    else {
        return LocalReply::invalid("not a resource of the template");
    };
    let values = match_template(template, uri).unwrap_or_default();
    let id = values.first().map_or("", |(_, value)| *value);
    let mut text = String::from(r#"{"id":"#);
    write_string(&mut text, id);
    text.push_str(r#","data":"#);
    write_string(&mut text, &format!("Data for ID: {id}"));
    text.push('}');
    contents(ResourceContents::text(uri, "application/json", &text))
}

fn add_prompts(registry: &mut Registry) -> Result<(), RegistryError> {
    let simple = Prompt::new("test_simple_prompt", "A prompt without arguments")
        .answered_by(|_| say([Content::text("This is a simple prompt for testing.")]));
    registry.add_prompt(simple)?;
    let with_arguments = Prompt::new("test_prompt_with_arguments", "A prompt with two arguments")
        .argument("arg1", "The first one", true)
        .argument("arg2", "The second one", true);
    registry.add_prompt(with_arguments.answered_by(|request| {
        let argument = |name| request.kind.argument_text(name).unwrap_or_default();
        let (one, two) = (argument("arg1"), argument("arg2"));
        let text = format!("Prompt with arguments: arg1='{one}', arg2='{two}'");
        say([Content::text(&text)])
    }))?;
    let with_resource = Prompt::new(
        "test_prompt_with_embedded_resource",
        "A prompt with a resource in it",
    )
    .argument("resourceUri", "URI of the resource to embed", true);
    registry.add_prompt(with_resource.answered_by(|request| {
        let uri = request
            .kind
            .argument_text("resourceUri")
            .unwrap_or_default();
        let text = "Embedded resource content for testing.";
        let page = ResourceContents::text(&uri, "text/plain", text);
        let ask = Content::text("Please process the embedded resource above.");
        say([Content::resource(&page), ask])
    }))?;
    let with_image = Prompt::new("test_prompt_with_image", "A prompt with a picture in it");
    registry.add_prompt(with_image.answered_by(|_| {
        let ask = Content::text("Please analyze the image above.");
        say([Content::image(PNG, "image/png"), ask])
    }))
}

/// A prompt in which the user says all this.
fn say<const N: usize>(blocks: [Content; N]) -> LocalReply {
    LocalReply::prompt(&blocks.map(|block| (Role::User, block)))
}
