//! Ends that no seed may forget.

use crate::support::{Setup, World};

#[test]
fn a_listen_stream_opened_during_the_end_is_ended_too() {
    let mut world = World::new(Setup {
        gateway_up: false,
        ..Setup::default()
    });
    let listen = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{{}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        )
    };
    world.client_appetite = Some(0);
    world.client_says(&listen(1));
    world.shut_down();
    world.client_says(&listen(2));
    world.client_appetite = None;
    world.settle();
    for id in [1, 2] {
        let result = format!(r#""id":{id},"result":"#);
        let answers = world
            .client_lines
            .iter()
            .filter(|line| line.contains(&result));
        assert_eq!(answers.count(), 1, "{:?}", world.client_lines);
    }
    assert!(world.finished.is_some());
}
