"""CEL expressions over devices: compiled, limited in cost, evaluated by cel-cpp."""
