/** Where requests begin and end in bytes, by RFC 9112 and nothing more lenient: what is behind a doubt is no request. */

export interface WireRequest {
  readonly method: string;
  readonly target: string;
  readonly version: string;
  /** Names in lower case; each byte of a value a character. */
  readonly fields: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array;
}

export interface Framing {
  /** All that are complete, up to the first doubt. */
  readonly requests: readonly WireRequest[];
  /** What follows them: nothing, the beginning of a request, or what is none. */
  readonly tail: "nothing" | "incomplete" | "malformed";
  /** Begins the tail: its head is sound, and its body is not known to be at its end. */
  readonly doubtful?: Doubtful;
}

export interface Doubtful {
  /** With as much of its body as there is. */
  readonly request: WireRequest;
  /**
   * Its last chunk has come, and what must stand behind that has not. By section 8 it is complete, by
   * section 7.1 it is not: it may be executed, as long as nothing wrong has been seen.
   */
  readonly isWhole: boolean;
}

type Defect = "incomplete" | "malformed";

/** Why there is no request, or none that is known to be at its end. */
class Broken extends Error {
  readonly defect: Defect;
  readonly body: Uint8Array | undefined;
  readonly isWhole: boolean;
  doubtful: Doubtful | undefined;

  constructor(defect: Defect, body?: Uint8Array, isWhole = false) {
    super(defect);
    this.defect = defect;
    this.body = body;
    this.isWhole = isWhole;
  }
}

/** RFC 9110, section 9, and RFC 5789; others are no methods to the service's runtime. */
const METHODS = /^(GET|HEAD|POST|PUT|DELETE|CONNECT|OPTIONS|TRACE|PATCH)$/;
const REQUEST_LINE = /^([^ ]+) ((?:\/|https?:\/\/)[\x21-\xff]*) (HTTP\/1\.[01])$/;
// DEL is among what section 5.5 of RFC 9110 lets a recipient retain, because it ends nothing.
const FIELD_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\t\x20-\xff]*[\x21-\xff])?)[ \t]*$/;
const CHUNK_LINE = /^([0-9A-Fa-f]{1,8})(?:;[\t\x20-\x7e\x80-\xff]*)?$/;

export function findFraming(bytes: Uint8Array): Framing {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1");
  const requests: WireRequest[] = [];
  for (let at = 0; ;) {
    if (at >= text.length) return { requests, tail: "nothing" };
    try {
      const [request, end] = readRequest(text, bytes, at);
      requests.push(request);
      at = end;
      // Whatever stands behind the last request of a connection is never read.
      if (isLast(request)) return { requests, tail: at < text.length ? "malformed" : "nothing" };
    } catch (error) {
      if (error instanceof Broken)
        return {
          requests,
          tail: error.defect,
          ...(error.doubtful === undefined ? {} : { doubtful: error.doubtful }),
        };
      throw error;
    }
  }
}

export const valuesOf = ({ fields }: Pick<WireRequest, "fields">, name: string): string[] =>
  fields.flatMap(([other, value]) => (other === name ? [value] : []));

function isLast(request: WireRequest): boolean {
  const options = valuesOf(request, "connection").join(",").toLowerCase().split(",");
  return request.version === "HTTP/1.0" || options.some((option) => option.trim() === "close");
}

function readRequest(text: string, bytes: Uint8Array, start: number): [WireRequest, number] {
  const [line, fieldsStart] = readLine(text, start);
  const [, method = "", target = "", version = ""] = REQUEST_LINE.exec(line) ?? [];
  if (!METHODS.test(method)) throw new Broken("malformed");
  const fields: [string, string][] = [];
  let at = fieldsStart;
  for (;;) {
    const [field, end] = readLine(text, at);
    at = end;
    if (field === "") break;
    const [whole, name = "", value = ""] = FIELD_LINE.exec(field) ?? [];
    if (whole === undefined) throw new Broken("malformed");
    fields.push([name.toLowerCase(), value]);
  }
  try {
    const [body, end] = readBody({ fields, version }, text, bytes, at);
    return [{ method, target, version, fields, body }, end];
  } catch (error) {
    if (error instanceof Broken && error.body !== undefined) {
      const request = { method, target, version, fields, body: error.body };
      error.doubtful = { request, isWhole: error.isWhole };
    }
    throw error;
  }
}

/** A bare CR or LF is no end of a line, and stands in none. */
function readLine(text: string, start: number): [string, number] {
  const end = text.indexOf("\r\n", start);
  const line = text.slice(start, end === -1 ? text.length : end);
  // Only the very last byte may be the first half of an end.
  if (/[\r\n\0]/.test(end === -1 ? line.replace(/\r$/, "") : line)) throw new Broken("malformed");
  if (end === -1) throw new Broken("incomplete");
  return [line, end + 2];
}

/** RFC 9112, section 6.3; where it leaves a choice between repairing and refusing, refusing. */
function readBody(
  head: Pick<WireRequest, "fields" | "version">,
  text: string,
  bytes: Uint8Array,
  start: number,
): [Uint8Array, number] {
  const codings = valuesOf(head, "transfer-encoding");
  const lengths = valuesOf(head, "content-length");
  if (codings.length > 0) {
    const isChunked = codings.length === 1 && codings[0]?.toLowerCase() === "chunked";
    if (!isChunked || lengths.length > 0 || head.version === "HTTP/1.0")
      throw new Broken("malformed");
    return readChunks(text, bytes, start);
  }
  if (lengths.length === 0) return [new Uint8Array(), start];
  if (
    !lengths.every((length) => /^\d{1,15}$/.test(length) && Number(length) === Number(lengths[0]))
  )
    throw new Broken("malformed");
  const end = start + Number(lengths[0]);
  if (end > bytes.length) throw new Broken("incomplete", bytes.subarray(start));
  return [bytes.subarray(start, end), end];
}

function readChunks(text: string, bytes: Uint8Array, start: number): [Uint8Array, number] {
  const chunks: Uint8Array[] = [];
  for (let at = start; ;) {
    const [dataStart, dataEnd] = readChunkLine(text, at, chunks);
    const behind = text.slice(dataEnd, dataEnd + 2);
    const isLastChunk = dataEnd === dataStart;
    chunks.push(bytes.subarray(dataStart, dataEnd));
    // The service takes no trailers, and an empty last chunk is followed by them.
    if (behind !== "\r\n")
      throw new Broken(
        "\r\n".startsWith(behind) ? "incomplete" : "malformed",
        Buffer.concat(chunks),
        isLastChunk,
      );
    if (isLastChunk) return [Buffer.concat(chunks), dataEnd + 2];
    at = dataEnd + 2;
  }
}

/** Where the data of the chunk begins and ends. */
function readChunkLine(text: string, at: number, before: Uint8Array[]): [number, number] {
  try {
    const [line, dataStart] = readLine(text, at);
    const size = CHUNK_LINE.exec(line)?.[1];
    if (size === undefined) throw new Broken("malformed");
    return [dataStart, dataStart + Number.parseInt(size, 16)];
  } catch (error) {
    throw error instanceof Broken ? new Broken(error.defect, Buffer.concat(before)) : error;
  }
}
