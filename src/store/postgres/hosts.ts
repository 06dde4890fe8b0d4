/** Finds the server that takes writes among those of the URL, again and again if need be. */

import { Connection, type Wanted } from "./connection.ts";
import { judge } from "./failure.ts";
import type { Host } from "./url.ts";

/** The server that was the right one last is asked alone for so long, before all the others are, too. */
const HEAD_START_MS = 300;

export class Hosts {
  private readonly wanted: Wanted;
  private current: Host | undefined;
  private doubted: Host | undefined;

  constructor(wanted: Wanted) {
    this.wanted = wanted;
  }

  /** Not where another server has taken over since: the old one may still answer, with what it had then. */
  isCurrent(connection: Connection): boolean {
    return connection.host === this.current;
  }

  /**
   * Asked last, once: it may have been replaced without knowing it. It would still say that it takes
   * writes, and none of them would ever be acknowledged, because its synchronous standby is gone.
   */
  doubt(connection: Connection): void {
    if (!this.isCurrent(connection)) return;
    this.current = undefined;
    this.doubted = connection.host;
  }

  /** A connection to the first server that says it takes writes. Rejects where none does in time. */
  async connect(deadlineMs: number): Promise<Connection> {
    const { hosts } = this.wanted.target;
    const isFirst = (host: Host): boolean =>
      this.current === undefined ? host !== this.doubted : host === this.current;
    const connection = await (hosts.length === 1
      ? Connection.open(this.wanted, hosts[0] as Host, deadlineMs)
      : this.race(
          hosts.filter(isFirst),
          hosts.filter((host) => !isFirst(host)),
          deadlineMs,
        ));
    this.current = connection.host;
    this.doubted = undefined;
    return connection;
  }

  private async race(
    firsts: readonly Host[],
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
    const favourites = firsts.map(attempt);
    const favourite = Promise.any(favourites);
    await Promise.race([favourite.catch(() => undefined), Bun.sleep(HEAD_START_MS)]);
    if (isWon) return favourite;
    try {
      return await Promise.any([...favourites, ...others.map(attempt)]);
    } catch (error) {
      throw mostTelling((error as AggregateError).errors);
    }
  }
}

/** That a password is wrong says more than that another server is a standby. */
function mostTelling(errors: readonly unknown[]): unknown {
  return errors.find((error) => judge(error) === "refused") ?? errors[0];
}
