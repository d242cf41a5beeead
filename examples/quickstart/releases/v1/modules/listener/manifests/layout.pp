# The directories below the node's root, and the Ruby code that all listeners share.
class listener::layout {
  $root = muster::self()['root']

  file { ["${root}/bin", "${root}/etc", "${root}/run", "${root}/log"]:
    ensure => directory,
    mode   => '0755',
  }

  file { "${root}/lib":
    ensure  => directory,
    source  => 'puppet:///modules/listener/lib',
    recurse => true,
    purge   => true,
    force   => true,
    mode    => '0644',
  }
}
