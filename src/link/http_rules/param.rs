//! `x-mcp-header`: which arguments of a tool travel in headers too.
//!
//! Source: Spec 2026-07-28 basic/transports/streamable-http (Custom Headers from Tool Parameters).

use crate::codec::http1::is_token;
use crate::codec::scan::{Text, elements, members};
use crate::secret::Quoted;

/// The keyword.
const ANNOTATION: &str = "x-mcp-header";

/// What stands before the annotation in the name of the header.
const PREFIX: &str = "Mcp-Param-";

/// One argument that travels in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// Name of the header, `Mcp-Param-` included.
    pub header: String,
    /// Where the argument is: names of members, from the arguments down. Never empty.
    pub path: Vec<String>,
    /// Its declared type.
    pub kind: ParamKind,
}

/// Types that an argument in a header may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// `string`: travels as it is.
    String,
    /// `integer` within ±(2^53−1): travels in decimal.
    Integer,
    /// `boolean`: travels as `true` or `false`.
    Boolean,
}

/// Reads the annotations of an input schema, outermost first, `most` of them (`param_headers_max`). The
/// schema is a raw value that was validated before; anything but an object has none.
///
/// The declared type may be a list of one of the three and `null`.
///
/// # Errors
/// Why the schema, and with it the tool, is invalid over HTTP: an annotation that is no token, comes twice,
/// stands on something that has none of the three types, or stands where not only `properties` lead.
pub fn param_headers(input_schema_raw: &str, most: usize) -> Result<Vec<ParamHeader>, String> {
    if !may_be_annotated(input_schema_raw.as_bytes()) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let mut places = vec![Place::root(input_schema_raw)];
    let mut next = 0;
    while next < places.len() {
        if let Some(header) = visit(&mut places, next)? {
            add(&mut found, header, most)?;
        }
        next += 1;
    }
    Ok(found)
}

/// Whether there is anything to look for. Most schemas have nothing, and there may be thousands of them.
fn may_be_annotated(raw: &[u8]) -> bool {
    // The keyword may be spelled with escapes.
    memchr::memmem::find(raw, ANNOTATION.as_bytes()).is_some()
        || memchr::memmem::find(raw, b"\\u").is_some()
}

/// One schema within the schema, and how it is reached.
struct Place<'a> {
    schema: &'a str,
    /// Index of the schema it stands in.
    parent: usize,
    /// The keyword that leads here; empty for the root.
    keyword: &'static str,
    /// The member of the keyword's object.
    name: Option<Text<'a>>,
    /// Whether only `properties` lead here, and at least one does.
    reachable: bool,
}

impl<'a> Place<'a> {
    const fn root(schema: &'a str) -> Self {
        Place {
            schema,
            parent: 0,
            keyword: "",
            name: None,
            reachable: false,
        }
    }
}

/// Reads one schema: notes the schemas in it, gives its annotation.
fn visit<'a>(places: &mut Vec<Place<'a>>, at: usize) -> Result<Option<ParamHeader>, String> {
    let mut annotation = None;
    let mut kind = None;
    let mut twice = false;
    for (name, raw) in members(places[at].schema) {
        if name.is(ANNOTATION) {
            twice |= annotation.replace(raw).is_some();
        } else if name.is("type") {
            twice |= kind.replace(raw).is_some();
        } else {
            note(places, at, name, raw);
        }
    }
    let Some(annotation) = annotation else {
        return Ok(None);
    };
    let wrong = |what: String| {
        let at = pointer(places, at);
        Err(format!(
            "{ANNOTATION} {} at {at} {what}",
            Quoted(annotation)
        ))
    };
    let name = Text::of_value(annotation).map(|text| text.decode());
    let Some(name) = name.filter(|name| is_token(name.as_bytes())) else {
        return wrong("must be a string that is an HTTP token".to_owned());
    };
    if twice {
        return wrong("must stand once, on one type (found two)".to_owned());
    }
    if !places[at].reachable {
        return wrong("must stand on a property that only properties lead to".to_owned());
    }
    let Some(kind) = kind.and_then(kind_of) else {
        let found = Quoted(kind.unwrap_or("none"));
        return wrong(format!(
            "must stand on type string, integer or boolean (found {found})"
        ));
    };
    Ok(Some(ParamHeader {
        header: format!("{PREFIX}{name}"),
        path: path(places, at),
        kind,
    }))
}

/// Adds the schemas that a keyword holds. Keywords that hold data (`default`, `enum`, …) or that we do not
/// know hold none.
fn note<'a>(places: &mut Vec<Place<'a>>, parent: usize, keyword: Text<'a>, raw: &'a str) {
    let Some(keyword) = KEYWORDS.into_iter().find(|known| keyword.is(known)) else {
        return;
    };
    let properties = keyword == PROPERTIES;
    let reachable = properties && (parent == 0 || places[parent].reachable);
    let place = |schema, name| Place {
        schema,
        parent,
        keyword,
        name,
        reachable,
    };
    if properties || MAPS.contains(&keyword) {
        places.extend(members(raw).map(|(name, schema)| place(schema, Some(name))));
    } else if raw.starts_with('[') {
        places.extend(elements(raw).map(|schema| place(schema, None)));
    } else {
        places.push(place(raw, None));
    }
}

const PROPERTIES: &str = "properties";

/// Keywords that hold schemas. Source: JSON Schema 2020-12 core §10 and §11, validation §8.5; draft 7 for
/// `additionalItems`, `definitions` and `dependencies`.
const KEYWORDS: [&str; 22] = [
    PROPERTIES,
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
    "contentSchema",
    "$defs",
    "definitions",
];

/// Those that hold them by name, beside [`PROPERTIES`].
const MAPS: [&str; 5] = [
    "patternProperties",
    "dependentSchemas",
    "dependencies",
    "$defs",
    "definitions",
];

/// The type that `type` declares, when it is one that can travel; `null` beside it is no other type.
fn kind_of(raw: &str) -> Option<ParamKind> {
    let one = |raw| {
        let name = Text::of_value(raw)?;
        [
            ("string", ParamKind::String),
            ("integer", ParamKind::Integer),
            ("boolean", ParamKind::Boolean),
        ]
        .into_iter()
        .find(|(known, _)| name.is(known))
        .map(|(_, kind)| kind)
    };
    if !raw.starts_with('[') {
        return one(raw);
    }
    let is_null = |raw: &&str| Text::of_value(raw).is_some_and(|name| name.is("null"));
    let mut types = elements(raw).filter(|raw| !is_null(raw));
    match (types.next(), types.next()) {
        (Some(raw), None) => one(raw),
        (Some(_) | None, _) => None,
    }
}

fn add(found: &mut Vec<ParamHeader>, header: ParamHeader, most: usize) -> Result<(), String> {
    let same = |other: &&ParamHeader| other.header.eq_ignore_ascii_case(&header.header);
    if let Some(other) = found.iter().find(same) {
        return Err(format!(
            "{ANNOTATION} must be unique in any letter case (found {} for {} and for {})",
            Quoted(&header.header[PREFIX.len()..]),
            Quoted(&other.path.join(".")),
            Quoted(&header.path.join("."))
        ));
    }
    if found.len() >= most {
        return Err(format!(
            "{ANNOTATION} may stand {most} times, limit param_headers_max (found more)"
        ));
    }
    found.push(header);
    Ok(())
}

/// The names of the properties that lead to a place.
fn path(places: &[Place<'_>], mut at: usize) -> Vec<String> {
    let mut path = Vec::new();
    while at != 0 {
        let name = places[at].name.map(|name| name.decode().into_owned());
        path.extend(name);
        at = places[at].parent;
    }
    path.reverse();
    path
}

/// Where a place is, for people: a JSON pointer without its escapes, cut by its reader.
fn pointer(places: &[Place<'_>], mut at: usize) -> String {
    let mut steps = Vec::new();
    while at != 0 {
        if let Some(name) = places[at].name {
            steps.push(name.decode().into_owned());
        }
        steps.push(places[at].keyword.to_owned());
        at = places[at].parent;
    }
    steps.reverse();
    let pointer = format!("/{}", steps.join("/"));
    Quoted(&pointer).to_string()
}
