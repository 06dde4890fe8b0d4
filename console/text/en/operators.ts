/** Signing in, tokens, webhooks and health. */
export const operators = {} as const;
