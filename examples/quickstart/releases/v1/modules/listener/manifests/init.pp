# One small Ruby listener, as a service of this node, on the node's own address. The program is its own control tool
# (see files/lib/daemon.rb); everything it has is below the node's root.
#
# @param port     where it listens
# @param source   its program
# @param config   further lines of its configuration; a list is written as words
define listener (
  Integer[1, 65535] $port,
  String[1] $source,
  Hash[String[1], Variant[Pattern[/\A.*\z/], Integer, Array[String]]] $config = {},
) {
  include listener::layout

  $here = muster::self()
  $root = $here['root']
  $program = "${root}/bin/${title}.rb"
  $control = ['ruby', '--disable-gems', $program]
  $settings = {
    'node'    => $here['node'],
    'version' => $here['version'],
    'address' => $here['interfaces']['eth0'],
    'port'    => $port,
  } + $config

  file { $program:
    source => $source,
    mode   => '0644',
  }

  file { "${root}/etc/${title}.conf":
    content => $settings.map |$key, $value| { "${key}=${[$value].flatten.join(' ')}\n" }.join,
    mode    => '0644',
  }

  # With new files the listener counts as stopped, and starting it replaces the old one: no notification is needed, and none
  # can get lost with a run that was cut off.
  service { $title:
    ensure   => running,
    provider => base,
    status   => shellquote($control, 'status'),
    start    => shellquote($control, 'start'),
    stop     => shellquote($control, 'stop'),
    require  => [Class['listener::layout'], File[$program], File["${root}/etc/${title}.conf"]],
  }
}
