export const plants = {
  idTakenBy: "Ya pertenece a {plant}.",
  notAdded: "{name} aún no se ha añadido.",
};
