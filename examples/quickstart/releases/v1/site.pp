# A node's name says its role: this is the whole map.
node /^db\d+/ { include db }
node /^web\d+/ { include web }
node /^lb\d+/ { include lb }
