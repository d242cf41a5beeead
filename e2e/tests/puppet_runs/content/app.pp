# A service with its package, its configuration and what must happen when that changes.
class app(Array[String] $ntp_servers, String $primary, Array[String] $peers, String $banner) {
  $root = muster::self()['root']

  file { "${root}/opt": ensure => directory }
  parcel { 'nova': ensure => '1.2', directory => "${root}/opt" }
  file { "${root}/app.conf":
    content => "rack ${facts['muster_rack']}\nntp ${ntp_servers.join(' ')}\nprimary ${primary}\npeers ${peers.join(' ')}\n${banner}\n",
    require => Parcel['nova'],
  }
  exec { 'reload':
    command     => "echo reloaded >> ${root}/events",
    provider    => shell,
    path        => '/usr/bin:/bin',
    refreshonly => true,
    subscribe   => File["${root}/app.conf"],
  }
  service { 'nova':
    ensure    => running,
    provider  => base,
    start     => "echo started >> ${root}/events; touch ${root}/running",
    stop      => "echo stopped >> ${root}/events; rm ${root}/running",
    restart   => "echo restarted >> ${root}/events",
    status    => "test -e ${root}/running",
    subscribe => File["${root}/app.conf"],
  }
  exec { 'migrate':
    command => "echo migrated > ${root}/schema",
    provider => shell,
    path     => '/usr/bin:/bin',
    creates  => "${root}/schema",
    require  => Service['nova'],
  }
  muster::publish('app::endpoint', { 'rack' => $facts['muster_rack'], 'port' => 8080 })
}
