# A small Ruby listener, as a service of this node, on the node's own address. The program has its own control commands
# (see files/lib/daemon.rb). All its files are below the node's root.
#
# @param port     port of the listener
# @param source   program of the listener
# @param config   further lines of the configuration; a list is written as words
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

  # After a change of its files the status of the listener is stopped, and `start` replaces the old process. So the service
  # needs no notification, which would be lost with an interrupted run.
  service { $title:
    ensure   => running,
    provider => base,
    status   => shellquote($control, 'status'),
    start    => shellquote($control, 'start'),
    stop     => shellquote($control, 'stop'),
    require  => [Class['listener::layout'], File[$program], File["${root}/etc/${title}.conf"]],
  }
}
