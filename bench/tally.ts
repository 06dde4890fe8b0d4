/** What was sent against what is stored: they differ by what was in flight when rounds ended, and by no more. */

import { WrongAnswer } from "./servers/server.ts";

export class Tally {
  readonly #inFlightMax: number;
  #rowsBefore: number | undefined;
  #sent = 0;
  #rounds = 0;

  constructor(inFlightMax: number) {
    this.#inFlightMax = inFlightMax;
  }

  get hasBegun(): boolean {
    return this.#rowsBefore !== undefined;
  }

  begin(rows: number): void {
    this.#rowsBefore = rows;
  }

  add(sent: number): void {
    this.#sent += sent;
    this.#rounds++;
  }

  verify(rows: number): void {
    const stored = rows - (this.#rowsBefore ?? rows);
    const least = this.#sent - this.#rounds * this.#inFlightMax;
    if (stored < least || stored > this.#sent)
      throw new WrongAnswer(`${this.#sent} creates were sent, and ${stored} plants were stored`);
  }
}
