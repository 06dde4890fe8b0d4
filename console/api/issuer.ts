/** Signing in at the issuer of JWTs: Authorization Code (RFC 6749, section 4.1) with PKCE (RFC 7636). */

import { scopes } from "../../src/domain/token.ts";
import { token } from "../state/session.ts";
import { keep, recall } from "../state/storage.ts";
import { fill, t } from "../text/text.ts";
import { readData, urlOf } from "./page.ts";
import { Explained } from "./service.ts";

let issuer = "";
/** Undefined if staff sign in with tokens only. */
export let issuerHost: string | undefined;

const KEY = "sign-in";

/** What this tab remembers while the user is at the issuer. */
interface Departure {
  readonly state: string;
  readonly verifier: string;
  /** The fragment of the view to return to. */
  readonly view: string;
}

/** An audience that is a URL is also the resource (RFC 8707). Some issuers know only the parameter `audience`. */
function findTarget(): Readonly<Record<string, string>> {
  const audience = readData("audience");
  return { audience, ...(/^https?:/.test(audience) && { resource: audience }) };
}

export async function leaveForIssuer(): Promise<void> {
  if (!isSecureContext) throw new Explained(fill(t.shell.openByHttps, { host: issuerHost ?? "" }));
  const [state, verifier] = [createSecret(), createSecret()];
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const url = new URL(await findEndpoint("authorization_endpoint"));
  const parameters = {
    response_type: "code",
    client_id: readData("clientId"),
    redirect_uri: urlOf(),
    scope: scopes.join(" "),
    state,
    code_challenge: toBase64Url(new Uint8Array(digest)),
    code_challenge_method: "S256",
    ...findTarget(),
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  keep("sessionStorage", KEY, { state, verifier, view: location.hash } satisfies Departure);
  location.assign(url);
}

/** The issuer's answer, with which it redirected the user here. Used once, and removed from the address at once. */
let answer: ReturnType<typeof takeAnswer>;

export function startIssuer(): void {
  issuer = readData("issuer");
  issuerHost = URL.parse(issuer)?.host;
  answer = takeAnswer();
}

function takeAnswer() {
  const departure = recall("sessionStorage", KEY) as Departure | undefined;
  const parameters = new URLSearchParams(location.search);
  if (departure === undefined || !parameters.has("state")) return undefined;
  keep("sessionStorage", KEY, undefined);
  history.replaceState(null, "", location.pathname);
  // Fires `hashchange`, so the route follows.
  if (departure.view !== "") location.replace(departure.view);
  // Another tab has signed the user in meanwhile. Used later, the answer would undo a sign-out.
  return token.peek() === undefined ? { departure, parameters } : undefined;
}

/** The access token, if the user has just returned from the issuer. */
export async function findIssuedToken(): Promise<string | undefined> {
  if (answer === undefined) return undefined;
  const { departure, parameters } = answer;
  answer = undefined;
  const isOurs = parameters.get("state") === departure.state;
  // RFC 9207: the answer of another issuer must not be used here.
  if (!isOurs || (parameters.get("iss") ?? issuer) !== issuer)
    throw new Explained(t.shell.otherAttempt);
  const code = parameters.get("code");
  if (code === null)
    throw new Explained(
      parameters.get("error") === "access_denied"
        ? fill(t.shell.issuerDenied, { host: issuerHost ?? "" })
        : fill(t.shell.issuerRefused, {
            host: issuerHost ?? "",
            reason: parameters.get("error") ?? "no code",
          }),
    );
  const body = new URLSearchParams({
    grant_type: "authorization_code",
    code,
    redirect_uri: urlOf(),
    client_id: readData("clientId"),
    code_verifier: departure.verifier,
    ...findTarget(),
  });
  const { access_token: issued } = await ask(await findEndpoint("token_endpoint"), {
    method: "POST",
    body,
  });
  return issued;
}

async function findEndpoint(name: string): Promise<string> {
  const place = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const { [name]: url = "", issuer: named } = await ask(place);
  if (named !== issuer || !/^https?:$/.test(URL.parse(url)?.protocol ?? ""))
    throw new Explained(fill(t.shell.issuerUndescribed, { host: issuerHost ?? "" }));
  return url;
}

async function ask(url: string, init: RequestInit = {}): Promise<Record<string, string>> {
  const response = await fetch(url, { ...init, credentials: "omit" }).catch(() => undefined);
  if (response?.ok) return (await response.json()) as Record<string, string>;
  throw new Explained(fill(t.shell.issuerFailed, { host: issuerHost ?? "" }));
}

const createSecret = (): string => toBase64Url(crypto.getRandomValues(new Uint8Array(32)));

const toBase64Url = (bytes: Uint8Array): string =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
