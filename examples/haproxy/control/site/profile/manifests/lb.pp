# haproxy in front of every node that offers a service.
#
# @param backends nodes that offer it, as `muster::services::<name>` lists them
# @param port port for clients
class profile::lb (
  Array[Hash] $backends,
  Stdlib::Port $port,
) {
  class { 'haproxy':
    merge_options    => true,
    global_options   => { 'log' => '/dev/log local0', 'stats' => 'socket /run/haproxy/admin.sock' },
    defaults_options => {
      'mode'    => 'http',
      'timeout' => ['connect 5s', 'client 30s', 'server 30s', 'queue 30s', 'check 5s'],
    },
    # Connections of clients survive a reload.
    restart_command  => '/usr/bin/systemctl reload-or-restart haproxy',
  }

  haproxy::listen { 'web':
    # There are no exported resources: the members are below.
    collect_exported => false,
    ipaddress        => muster::self()['interfaces']['eth0'],
    ports            => String($port),
    mode             => 'http',
    options          => { 'balance' => 'roundrobin' },
  }

  $backends.each |Hash $backend| {
    haproxy::balancermember { $backend['node']:
      listening_service => 'web',
      server_names      => $backend['node'],
      ipaddresses       => $backend['address'],
      ports             => String($backend['port']),
      options           => 'check',
    }
  }
}
