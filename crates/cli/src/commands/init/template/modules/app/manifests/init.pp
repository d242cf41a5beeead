# Writes a greeting into the node's directory.
#
# @param greeting  from data/common.yaml; `muster data set app::greeting Hello!` overrides it
class app (String[1] $greeting) {
  $here = muster::self()

  file { "${here['root']}/greeting":
    content => "${greeting} from ${here['node']}\n",
  }
}
