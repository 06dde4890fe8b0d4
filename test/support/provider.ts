/** A real OpenID provider, with keys that a test can rotate. */

import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair } from "jose";
import { Provider } from "oidc-provider";
import { scopes } from "../../src/domain/token.ts";

const SECRET = "a-secret-of-the-client-nightly";
const CONSOLE_CLIENT = "console";
const PLACE = "/.well-known/openid-configuration";

/** `redirectUri` is where the console is. The audience is its URL. The token endpoint is at another origin. */
export async function startProvider(redirectUri = "http://127.0.0.1:9/") {
  const server = createServer((request, response) => {
    if (request.url === PLACE && !request.headers["x-original"]) void describe(response);
    // Instead of a page that asks the user who they are, and for consent.
    else if (!request.url?.startsWith("/interaction/")) void provider.callback()(request, response);
    else
      void provider.interactionFinished(request, response, {
        login: { accountId: "alice" },
        consent: {},
      });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const tokenOrigin = url.replace("127.0.0.1", "localhost");
  const describe = async (response: ServerResponse): Promise<void> => {
    const found = await fetch(url + PLACE, { headers: { "x-original": "true" } });
    const named = { ...((await found.json()) as object), token_endpoint: `${tokenOrigin}/token` };
    response.setHeader("access-control-allow-origin", "*");
    response.end(JSON.stringify(named));
  };
  const create = async () => {
    const { privateKey } = await generateKeyPair("RS256", { extractable: true });
    const key = { ...(await exportJWK(privateKey)), kid: crypto.randomUUID(), use: "sig" };
    return new Provider(url, {
      jwks: { keys: [key] },
      cookies: { keys: [SECRET] },
      clients: [
        {
          client_id: "nightly",
          client_secret: SECRET,
          grant_types: ["client_credentials"],
          redirect_uris: [],
          response_types: [],
        },
        {
          client_id: CONSOLE_CLIENT,
          token_endpoint_auth_method: "none",
          application_type: "native",
          grant_types: ["authorization_code"],
          redirect_uris: [redirectUri],
          response_types: ["code"],
        },
      ],
      clientBasedCORS: () => true,
      // Every user has consented to all scopes.
      loadExistingGrant: async ({ oidc }) => {
        const { clientId } = oidc.client ?? {};
        const accountId = oidc.session?.accountId;
        const grant = new oidc.provider.Grant({ clientId, accountId });
        grant.addResourceScope(redirectUri, scopes.join(" "));
        await grant.save();
        return grant;
      },
      features: {
        clientCredentials: { enabled: true },
        devInteractions: { enabled: false },
        resourceIndicators: {
          enabled: true,
          getResourceServerInfo: (_context, resource) => ({
            audience: resource,
            scope: scopes.join(" "),
            accessTokenFormat: "jwt",
            jwt: { sign: { alg: "RS256" } },
          }),
          useGrantedResource: () => true,
        },
      },
    });
  };
  let provider = await create();
  const credentials = { grant_type: "client_credentials", resource: redirectUri };
  return {
    url,
    tokenOrigin,
    settings: {
      PLANTSTORE_JWT_ISSUER: url,
      PLANTSTORE_JWT_AUDIENCE: redirectUri,
      PLANTSTORE_JWT_CLIENT_ID: CONSOLE_CLIENT,
    },
    /** A token by client credentials, for the client `nightly`. */
    grant: async (scope: string): Promise<string> => {
      const response = await fetch(`${url}/token`, {
        method: "POST",
        headers: { authorization: `Basic ${btoa(`nightly:${SECRET}`)}` },
        body: new URLSearchParams({ ...credentials, scope }),
      });
      const { access_token: token } = (await response.json()) as { access_token: string };
      return token;
    },
    /** Signs with a new key from now on, and publishes only that one. */
    rotate: async (): Promise<void> => void (provider = await create()),
    [Symbol.asyncDispose]: async (): Promise<void> => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
