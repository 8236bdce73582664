// Scenarios that may fall short of strict, each for one named reason. An entry that is not needed
// any more fails the run.
export const EXCEPTIONS = [
  {
    leg: "server",
    scenario: "tasks-status-notifications",
    shortfall: "vacuous",
    reason: "the suite skips it for every server until it is rewritten for subscriptions/listen",
  },
];

// Scenarios of the client leg that are not run, by the start of their names. They are counted and
// named apart, and never as passed.
export const LEFT_OUT = [{ prefix: "auth/", reason: "needs OAuth" }];
