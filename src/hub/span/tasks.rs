//! Tasks that servers have made of our clients' calls: whose each of them is.

use crate::hub::Hub;
use crate::ids::RuntimeId;
use crate::manager::server_config::ServerKey;

impl Hub {
    /// The server whose task this is, where that can be known.
    pub(super) fn server_of_task(&self, _runtime: RuntimeId, _id: &str) -> Option<ServerKey> {
        self.upstream.as_ref()?.only_server()
    }
}
