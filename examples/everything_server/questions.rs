//! Tools and a prompt that need to know something from the client: a person, its model or itself.
//!
//! Each is written once. It looks whether the answer is there and asks for it if not; whether the client is
//! asked by requests (up to 2025-11-25) or brings the answers when it tries again (2026-07-28) is the
//! library's business.

use drawspan::local::{
    Content, Feature, InputRequest, LocalReply, LocalRequest, Prompt, Registry, RegistryError,
    Role, Tool,
};

use crate::samples::{FORM_NAME, FORM_OK, FORM_WITH_CHOICES, FORM_WITH_DEFAULTS, NOTHING};

/// Adds all of them.
///
/// # Errors
/// When a definition is not what clients expect: a mistake in this file.
pub(crate) fn add(registry: &mut Registry) -> Result<(), RegistryError> {
    let sampling = Tool::new(
        "test_sampling",
        "Asks the client's model",
        r#"{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}"#,
    );
    registry.add_tool(sampling.answered_by(sampling_tool))?;
    let elicitation = Tool::new(
        "test_elicitation",
        "Asks a person",
        r#"{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}"#,
    );
    registry.add_tool(elicitation.answered_by(elicitation_tool))?;
    type Answer = fn(&LocalRequest) -> LocalReply;
    let tools: [(&str, &str, Answer); 14] = [
        (
            "test_elicitation_sep1034_defaults",
            "A form with defaults",
            with_defaults,
        ),
        (
            "test_elicitation_sep1330_enums",
            "A form with choices",
            with_choices,
        ),
        ("test_elicitation_url", "A page for a person to open", page),
        (
            "test_missing_capability",
            "Needs a client with a model",
            missing_capability,
        ),
        (
            "test_streaming_elicitation",
            "Asks a person, on a stream",
            ask_for_name,
        ),
        (
            "test_input_required_result_elicitation",
            "Asks for a name",
            ask_for_name,
        ),
        (
            "test_input_required_result_sampling",
            "Asks the model",
            capital,
        ),
        (
            "test_input_required_result_list_roots",
            "Asks for the roots",
            roots,
        ),
        (
            "test_input_required_result_request_state",
            "Remembers something",
            request_state,
        ),
        (
            "test_input_required_result_multiple_inputs",
            "Asks three things at once",
            multiple,
        ),
        (
            "test_input_required_result_multi_round",
            "Asks one thing after the other",
            multi_round,
        ),
        (
            "test_input_required_result_tampered_state",
            "Remembers something",
            request_state,
        ),
        (
            "test_input_required_result_capabilities",
            "Asks what the client offers",
            offered,
        ),
        (
            "test_elicitation_and_sampling",
            "Asks a person, then the model",
            person_then_model,
        ),
    ];
    for (name, description, answer) in tools {
        registry.add_tool(Tool::new(name, description, NOTHING).answered_by(answer))?;
    }
    let prompt = Prompt::new(
        "test_input_required_result_prompt",
        "A prompt that asks a person first",
    );
    registry.add_prompt(prompt.answered_by(prompt_with_context))
}

fn sampling_tool(request: &LocalRequest) -> LocalReply {
    let Some(prompt) = request.kind.argument_text("prompt") else {
        return LocalReply::failed("prompt must be a string");
    };
    match request.context.input("sample") {
        Some(answer) => LocalReply::text(&format!("LLM response: {answer}")),
        None => LocalReply::ask([InputRequest::sample_text("sample", &prompt, 100)]),
    }
}

fn elicitation_tool(request: &LocalRequest) -> LocalReply {
    const FORM: &str = r#"{
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"}
        },
        "required": ["username", "email"]
    }"#;
    let Some(message) = request.kind.argument_text("message") else {
        return LocalReply::failed("message must be a string");
    };
    form(request, "User response", &message, FORM)
}

fn with_defaults(request: &LocalRequest) -> LocalReply {
    let message = "Please review and update the form fields with defaults";
    form(
        request,
        "Elicitation completed",
        message,
        FORM_WITH_DEFAULTS,
    )
}

fn with_choices(request: &LocalRequest) -> LocalReply {
    let message = "Please select options from the enum fields";
    form(request, "Elicitation completed", message, FORM_WITH_CHOICES)
}

/// Asks a person and tells what came of it, whatever that is.
fn form(request: &LocalRequest, label: &str, message: &str, schema: &str) -> LocalReply {
    match request.context.input("form") {
        Some(answer) => LocalReply::text(&format!("{label}: {answer}")),
        None => LocalReply::ask([InputRequest::form("form", message, schema)]),
    }
}

fn page(request: &LocalRequest) -> LocalReply {
    const URL: &str = "https://example.com/confirm?order=1";
    match request.context.input("page") {
        Some(answer) => LocalReply::text(&format!("The page: {answer}")),
        None => LocalReply::ask([InputRequest::url("page", "Please confirm the order", URL)]),
    }
}

/// Its one question cannot be asked of a client that did not declare sampling: the library says so.
fn missing_capability(request: &LocalRequest) -> LocalReply {
    match request.context.input("sample") {
        Some(_) => LocalReply::text("The client has a model."),
        None => LocalReply::ask([InputRequest::sample_text("sample", "Are you there?", 10)]),
    }
}

fn ask_for_name(request: &LocalRequest) -> LocalReply {
    match request.context.accepted_text("user_name", "name") {
        Some(name) => LocalReply::text(&format!("Hello, {name}!")),
        None => LocalReply::ask([ask_name()]),
    }
}

fn ask_name() -> InputRequest {
    InputRequest::form("user_name", "What is your name?", FORM_NAME)
}

fn capital(request: &LocalRequest) -> LocalReply {
    match request.context.input("capital_question") {
        Some(answer) => LocalReply::text(&format!("The model says: {answer}")),
        None => {
            let text = "What is the capital of France?";
            LocalReply::ask([InputRequest::sample_text("capital_question", text, 100)])
        }
    }
}

fn roots(request: &LocalRequest) -> LocalReply {
    match request.context.input("client_roots") {
        Some(answer) => LocalReply::text(&format!("The client's roots: {answer}")),
        None => LocalReply::ask([InputRequest::roots("client_roots")]),
    }
}

/// What is remembered is signed: a client that alters it gets an error before this function is called.
fn request_state(request: &LocalRequest) -> LocalReply {
    let context = &request.context;
    match (context.state.as_deref(), context.accepted("confirm")) {
        (Some("asked"), Some(_)) => LocalReply::text("state-ok"),
        _ => {
            let confirm = InputRequest::form("confirm", "Please confirm", FORM_OK);
            LocalReply::ask_with([confirm], "asked")
        }
    }
}

fn multiple(request: &LocalRequest) -> LocalReply {
    let context = &request.context;
    let name = context.accepted_text("user_name", "name");
    let greeting = context.input("greeting");
    let roots = context.input("client_roots");
    match (name, greeting, roots) {
        (Some(name), Some(greeting), Some(roots)) => {
            LocalReply::text(&format!("{name} is greeted by {greeting} in {roots}"))
        }
        _ => LocalReply::ask_with(
            [
                ask_name(),
                InputRequest::sample_text("greeting", "Generate a greeting", 50),
                InputRequest::roots("client_roots"),
            ],
            "asked three things",
        ),
    }
}

/// The answer of the first round is only there in the second one: it is remembered for the third.
fn multi_round(request: &LocalRequest) -> LocalReply {
    const FORM_COLOR: &str =
        r#"{"type":"object","properties":{"color":{"type":"string"}},"required":["color"]}"#;
    let context = &request.context;
    let name = context.accepted_text("step1", "name");
    let color = context.accepted_text("step2", "color");
    let step2 = || InputRequest::form("step2", "Step 2: Which colour do you like?", FORM_COLOR);
    match (context.state.as_deref(), name, color) {
        (Some("1"), Some(name), _) => LocalReply::ask_with([step2()], format!("2 {name}")),
        (Some(state), _, color) if state.starts_with("2 ") => match color {
            Some(color) => LocalReply::text(&format!("{} likes {color}.", &state[2..])),
            None => LocalReply::ask_with([step2()], state),
        },
        _ => {
            let step1 = InputRequest::form("step1", "Step 1: What is your name?", FORM_NAME);
            LocalReply::ask_with([step1], "1")
        }
    }
}

/// Asks whatever the client declared that it can be asked.
fn offered(request: &LocalRequest) -> LocalReply {
    let context = &request.context;
    if context.inputs.is_some() {
        return LocalReply::text("The client answered what it was asked.");
    }
    let mut questions = Vec::new();
    if context.offers(Feature::Sampling) {
        questions.push(InputRequest::sample_text("sample", "Say something", 50));
    }
    if context.offers(Feature::ElicitationForm) {
        questions.push(ask_name());
    }
    if context.offers(Feature::Roots) {
        questions.push(InputRequest::roots("client_roots"));
    }
    if questions.is_empty() {
        return LocalReply::text("The client cannot be asked anything.");
    }
    LocalReply::ask(questions)
}

/// Two questions of which the second depends on the first.
fn person_then_model(request: &LocalRequest) -> LocalReply {
    let context = &request.context;
    if let Some(answer) = context.input("greeting") {
        return LocalReply::text(&format!("The model greets: {answer}"));
    }
    match context.accepted_text("user_name", "name") {
        Some(name) => {
            let text = format!("Greet {name} in one sentence.");
            LocalReply::ask([InputRequest::sample_text("greeting", &text, 50)])
        }
        None => LocalReply::ask([ask_name()]),
    }
}

fn prompt_with_context(request: &LocalRequest) -> LocalReply {
    const FORM: &str =
        r#"{"type":"object","properties":{"context":{"type":"string"}},"required":["context"]}"#;
    match request.context.accepted_text("user_context", "context") {
        Some(context) => {
            let text = format!("Please answer with this in mind: {context}");
            LocalReply::prompt(&[(Role::User, Content::text(&text))])
        }
        None => {
            let message = "What context should the prompt use?";
            LocalReply::ask([InputRequest::form("user_context", message, FORM)])
        }
    }
}
