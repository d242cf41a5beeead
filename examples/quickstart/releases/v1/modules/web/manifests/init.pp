# Answers with a greeting, and with a motto that it reads from a db node for each request.
class web (
  Integer $port,
  String[1] $greeting,
  Integer[1] $db_count,
  Array[String] $db_addresses,
  Integer $db_port,
) {
  muster::require_active('db', $db_count)

  listener { 'web':
    port   => $port,
    source => 'puppet:///modules/web/web.rb',
    config => {
      'greeting' => $greeting,
      'db'       => $db_addresses,
      'db_port'  => $db_port,
    },
  }
}
