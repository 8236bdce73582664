//! Where the Gateway is and what opens it.

use crate::secret::Secret;

/// What we show a Gateway besides the device key. Both may be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Shared token.
    pub token: Option<Secret<String>>,
    /// Shared password.
    pub password: Option<Secret<String>>,
}
