// One line per check, counted.
const WIDTH = 9;

export class Checks {
  passed = 0;
  failed = 0;

  /** Runs `act`; it fails by throwing. */
  async check(name, act) {
    try {
      await act();
      this.pass(name);
    } catch (error) {
      this.fail(name, error.message);
    }
  }

  pass(name, verdict = "ok") {
    this.passed++;
    console.log(`${verdict.padEnd(WIDTH)} ${name}`);
  }

  fail(name, why) {
    this.failed++;
    console.log(
      `${"FAILED".padEnd(WIDTH)} ${name}\n${`${why}`.replace(/^/gm, " ".repeat(WIDTH + 3))}`,
    );
  }

  /** The closing line; true when nothing failed and something ran. */
  close() {
    console.log(`${this.passed} passed, ${this.failed} failed`);
    return this.failed === 0 && this.passed > 0;
  }
}
