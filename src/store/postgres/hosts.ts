/** Finds the server that takes writes among those of the URL, again and again if need be. */

import { Connection, type Wanted } from "./connection.ts";
import { judge } from "./failure.ts";
import type { Host } from "./url.ts";

/** The server that was the right one last is asked alone for so long, before all the others are, too. */
const HEAD_START_MS = 300;

export class Hosts {
  private readonly wanted: Wanted;
  private current: Host | undefined;

  constructor(wanted: Wanted) {
    this.wanted = wanted;
  }

  /** Not where another server has taken over since: the old one may still answer, with what it had then. */
  isCurrent(connection: Connection): boolean {
    return connection.host === this.current;
  }

  /** A connection to the first server that says it takes writes. Rejects where none does in time. */
  async connect(deadlineMs: number): Promise<Connection> {
    const { hosts } = this.wanted.target;
    const [first = hosts[0] as Host, ...others] = this.inOrder();
    const connection = await (others.length === 0
      ? Connection.open(this.wanted, first, deadlineMs)
      : this.race(first, others, deadlineMs));
    this.current = connection.host;
    return connection;
  }

  private inOrder(): readonly Host[] {
    const { hosts } = this.wanted.target;
    const { current } = this;
    if (current === undefined) return hosts;
    return [current, ...hosts.filter((host) => host !== current)];
  }

  private async race(
    first: Host,
    others: readonly Host[],
    deadlineMs: number,
  ): Promise<Connection> {
    let isWon = false;
    const attempt = async (host: Host): Promise<Connection> => {
      const connection = await Connection.open(this.wanted, host, deadlineMs);
      if (isWon) connection.close();
      isWon = true;
      return connection;
    };
    const favourite = attempt(first);
    await Promise.race([favourite.catch(() => undefined), Bun.sleep(HEAD_START_MS)]);
    if (isWon) return favourite;
    try {
      return await Promise.any([favourite, ...others.map(attempt)]);
    } catch (error) {
      throw mostTelling((error as AggregateError).errors);
    }
  }
}

/** That a password is wrong says more than that another server is a standby. */
function mostTelling(errors: readonly unknown[]): unknown {
  return errors.find((error) => judge(error) === "refused") ?? errors[0];
}
