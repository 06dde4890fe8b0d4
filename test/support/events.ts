/** A reader of an event stream, as the HTML standard has it. */

interface ServerEvent {
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

/** Follows GET /changes until it is disposed of, or cut off. */
export class EventReader implements AsyncDisposable {
  readonly response: Response;
  /** As the standard keeps it, also of events without data. */
  lastEventId = "";
  comments = 0;
  private readonly reader;
  private readonly decoder = new TextDecoder();
  private text = "";

  constructor(response: Response) {
    this.response = response;
    this.reader = (response.body as ReadableStream<Uint8Array>).getReader();
  }

  static async open(
    url: string,
    headers: Readonly<Record<string, string>>,
    query = "",
  ): Promise<EventReader> {
    const response = await fetch(`${url}/changes${query}`, {
      headers: { accept: "text/event-stream", ...headers },
    });
    if (response.status !== 200)
      throw new Error(`the feed answers ${response.status} ${await response.text()}`);
    return new EventReader(response);
  }

  /** Undefined at the end of the stream. Rejects if it is cut off. */
  async next(): Promise<ServerEvent | undefined> {
    for (;;) {
      const end = this.text.indexOf("\n\n");
      if (end === -1) {
        const { done, value } = await this.reader.read();
        if (done) return undefined;
        this.text += this.decoder.decode(value, { stream: true });
        continue;
      }
      const block = this.text.slice(0, end);
      this.text = this.text.slice(end + 2);
      this.comments += block.match(/^:/gm)?.length ?? 0;
      const [id, data, event = "message"] = ["id", "data", "event"].map(
        (name) => new RegExp(`^${name}: (.*)$`, "m").exec(block)?.[1],
      );
      this.lastEventId = id ?? this.lastEventId;
      if (data !== undefined) return { id: this.lastEventId, event, data };
    }
  }

  async take(count: number): Promise<ServerEvent[]> {
    const events: ServerEvent[] = [];
    while (events.length < count) {
      const event = await this.next();
      if (event === undefined) throw new Error("the feed ended");
      events.push(event);
    }
    return events;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.reader.cancel().catch(() => undefined);
  }
}
