# The role of a node, by its name.
node /^db\d+/ { include db }
node /^web\d+/ { include web }
node /^lb\d+/ { include lb }
