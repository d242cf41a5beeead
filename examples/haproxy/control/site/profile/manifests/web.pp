# apache with one page, which names its node.
#
# @param port port of the site
class profile::web (
  Stdlib::Port $port,
) {
  class { 'apache':
    default_vhost => false,
    mpm_module    => 'event',
  }

  apache::vhost { 'web':
    servername => $facts['muster']['host'],
    ip         => muster::self()['interfaces']['eth0'],
    port       => $port,
    docroot    => '/var/www/web',
  }

  file { '/var/www/web/index.html':
    content => "served by ${facts['muster']['node']}\n",
  }
}
