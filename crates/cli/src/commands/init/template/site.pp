# Nodes are matched by their names: app1, app2 and so on.
node /^app\d+$/ {
  include app
}
