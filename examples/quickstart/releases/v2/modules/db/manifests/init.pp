# A key-value service: GET /<key> returns the value that Puppet wrote to its data file.
class db (
  Integer $port,
  Hash[Pattern[/\A[a-z]+\z/], Pattern[/\A.*\z/]] $entries,
) {
  $data = "${muster::self()['root']}/etc/db.entries"

  file { $data:
    content => $entries.map |$key, $value| { "${key}=${value}\n" }.join,
    mode    => '0644',
    before  => Listener['db'],
  }

  listener { 'db':
    port   => $port,
    source => 'puppet:///modules/db/db.rb',
    config => { 'entries' => $data },
  }
}
