export const operators = {};
