node /^lb\d+/  { include role::lb }
node /^web\d+/ { include role::web }
