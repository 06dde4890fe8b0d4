/** How much a store holds. */

export interface PlantCounts {
  readonly count: bigint;
  readonly tagged: bigint;
  readonly tags: bigint;
  readonly idMin: bigint | null;
  readonly idMax: bigint | null;
}

export interface TokenCounts {
  readonly active: bigint;
  readonly expired: bigint;
  readonly revoked: bigint;
}
