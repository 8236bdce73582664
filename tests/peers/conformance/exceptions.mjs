// Scenarios that may fall short of strict, each for one named reason. An entry that is not needed
// any more fails the run.
export const EXCEPTIONS = [
  {
    scenario: "tasks-status-notifications",
    shortfall: "vacuous",
    reason: "the suite skips it for every server until it is rewritten for subscriptions/listen",
  },
];
