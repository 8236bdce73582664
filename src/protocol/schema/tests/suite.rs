//! The JSON-Schema-Test-Suite: what is required of 2020-12 and draft-07, and how much of what is optional.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jsonschema::{Retrieve, Uri};
use serde_json::Value;

use super::super::Schema;
use crate::limits::Limits;

/// Groups that do not hold: their dialect is a meta-schema of the suite's own. A dialect we do not know checks
/// nothing, see [`Schema`].
const EXCLUDED: [&str; 4] = [
    "format-assertion.json: schema that uses custom metaschema with format-assertion: false",
    "format-assertion.json: schema that uses custom metaschema with format-assertion: true",
    "vocabulary.json: ignore unrecognized optional vocabulary",
    "vocabulary.json: schema that uses custom metaschema with with no validation vocabulary",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpora/JSON-Schema-Test-Suite")
}

/// The remotes of the suite, which schemas of its own refer to. Nothing but these tests can have them.
struct Remotes;

impl Retrieve for Remotes {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let path = uri.as_str().strip_prefix("http://localhost:1234/");
        let path = path.ok_or("not a remote of the suite")?;
        let text = std::fs::read_to_string(folder().join("remotes").join(path))?;
        Ok(serde_json::from_str(&text)?)
    }
}

#[derive(Default)]
struct Count {
    held: usize,
    of: usize,
    /// `file: group` with a test that did not hold.
    failing: BTreeSet<String>,
}

fn run(folder: &Path, dialect: &str) -> Count {
    let mut count = Count::default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the suite is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        let groups: Value = serde_json::from_str(&text).expect("JSON");
        let name = file.file_name().expect("a name").to_string_lossy();
        for group in groups.as_array().expect("an array") {
            let mut schema = group["schema"].clone();
            if let Some(map) = schema.as_object_mut() {
                map.entry("$schema").or_insert_with(|| dialect.into());
            }
            let schema = Schema::compile_with(&schema.to_string(), &Limits::DEFAULT, |options| {
                options.with_retriever(Remotes)
            });
            for test in group["tests"].as_array().expect("an array") {
                count.of += 1;
                let valid = schema
                    .as_ref()
                    .map(|schema| schema.check(&test["data"].to_string()).is_ok());
                if valid.ok() == test["valid"].as_bool() {
                    count.held += 1;
                } else {
                    let group = group["description"].as_str().expect("a description");
                    count.failing.insert(format!("{name}: {group}"));
                }
            }
        }
    }
    count
}

fn check(draft: &str, dialect: &str, held: (usize, usize)) {
    let count = run(&folder().join("tests").join(draft), dialect);
    let excluded = |group: &String| EXCLUDED.contains(&group.as_str());
    assert!(count.failing.iter().all(excluded), "{:#?}", count.failing);
    assert_eq!((count.held, count.of), held);
}

#[test]
fn required_tests_hold() {
    let dialect = "https://json-schema.org/draft/2020-12/schema";
    check("draft2020-12", dialect, (1_294, 1_299));
    check(
        "draft7",
        "http://json-schema.org/draft-07/schema#",
        (927, 927),
    );
}

/// Those of `format` left out: it is an annotation here.
#[test]
fn optional_tests_hold() {
    let dialect = "https://json-schema.org/draft/2020-12/schema";
    check("draft2020-12/optional", dialect, (158, 162));
    check(
        "draft7/optional",
        "http://json-schema.org/draft-07/schema#",
        (118, 118),
    );
}
