//! Newtypes for everything that is counted. Two numbers that mean different things never mix.

mod map;
mod newest;

pub use self::map::{IdMap, Key};
pub use self::newest::NewestMap;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The next one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl Key for $name {
            fn number(self) -> u64 {
                self.0.into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// One descriptor pair of the outside world, as its machine names it. Minted by the machine that
    /// asks for it and unique within that machine; never reused.
    WireId(u32)
);
id!(
    /// One downstream MCP client of a hub.
    PeerId(u32)
);
id!(
    /// One tool call, from its arrival to its one answer, wherever it is in between.
    CallId(u64)
);
id!(
    /// Position in the event queue of the channel bridge: 1 for the first event, strictly rising.
    EventCursor(u64)
);
id!(
    /// One request of ours to the Gateway; its `id` on the wire is this number as text.
    GatewayRequestId(u64)
);
id!(
    /// One session's runtime of the manager: its own connections to every server that is not shared.
    RuntimeId(u32)
);
id!(
    /// One request of ours to an upstream MCP server; its `id` on the wire is this number. Never reused
    /// within one manager, so that an answer can be told from one of an earlier connection.
    UpstreamRequestId(u64)
);
id!(
    /// One request an upstream MCP server has made of us (sampling, elicitation, roots), until it is
    /// answered.
    QuestionId(u64)
);
id!(
    /// One piece of work that a manager was asked for, from the asking to its one answer.
    TicketId(u64)
);

/// Where a machine with many wires gets their names from: one counter for all of its parts, so that no two
/// of them can choose the same.
#[derive(Debug, Default)]
pub struct WireMint(WireId);

impl WireMint {
    /// A mint whose first wire is `first`.
    #[must_use]
    pub const fn starting_at(first: WireId) -> Self {
        Self(first)
    }

    /// A wire that no one has named yet.
    pub fn mint(&mut self) -> WireId {
        let minted = self.0;
        self.0 = minted.next();
        minted
    }
}
