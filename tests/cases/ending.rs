//! How a server is ended: c12, c14.

use std::time::Duration;

use serde_json::{Value, json};

use crate::era::in_era;
use crate::world::{ERAS, PROMPT, World, case};

/// Between the end of its input and SIGTERM, and before SIGKILL.
const GRACE_MS: u64 = 400;

fn config(world: &World, era: &str, steps: &Value) -> String {
    let entry = world.entry("s", steps, json!({"protocol": era}));
    let limits = json!({"limits": {"child_grace_interval_ms": GRACE_MS}});
    world.config_with(json!({"s": entry}), limits)
}

#[test]
fn c12_ignores_term() {
    for era in ERAS {
        let world = World::new(&format!("c12-{era}"));
        let steps = in_era(era, &case("c12-ignores-term")["input"])["steps"].clone();
        let config = config(&world, era, &steps);
        let run = world
            .run(&["list", "s", "--config", &config, "--json"])
            .expect_code(0);
        // Reaped before the program ended: nothing to wait for.
        world.nobody().unwrap();
        assert_eq!(run.tools(), ["echo"]);
        // Two waits, each as long as it says, then SIGKILL.
        let waits = Duration::from_millis(2 * GRACE_MS);
        assert!(run.took >= waits && run.took < PROMPT, "{run:?}");
    }
}

#[test]
fn c12_its_descendants_are_ended_too() {
    let input = case("c12-ignores-term")["input"].clone();
    for (ignores, stays) in [(true, false), (true, true), (false, true)] {
        let world = World::new(&format!("c12-tree-{ignores}-{stays}"));
        let ignored = if ignores {
            json!(["SIGTERM"])
        } else {
            json!([])
        };
        let mut steps = input["steps"].clone();
        // A grandchild that holds the output open, of a child that leaves or stays.
        steps[0] = json!({"do": "spawn", "seconds": 100, "ignore": ignored, "keep_stdout": true});
        if !stays {
            steps[2] = json!({"do": "exit", "code": 0});
        }
        let config = config(&world, "legacy", &steps);
        let run = world.run(&["list", "s", "--config", &config, "--json"]);
        assert_eq!(run.expect_prompt().expect_code(0).tools(), ["echo"]);
        world.expect_nobody();
    }
}

#[test]
fn c14_shutdown_not_in_result_path() {
    for era in ERAS {
        let world = World::new(&format!("c14-{era}"));
        let steps = in_era(era, &case("c14-shutdown-not-in-result-path")["input"])["steps"].clone();
        let config = config(&world, era, &steps);
        let run = world.run(&["call", "s", "echo", "--config", &config, "--json"]);
        let run = run.expect_code(0);
        assert_eq!(run.text(), "done");
        // The result was out before the waits for the server began.
        let waits = Duration::from_millis(2 * GRACE_MS);
        assert!(run.took - run.answered >= waits.mul_f32(0.9), "{run:?}");
        world.expect_nobody();
    }
}
