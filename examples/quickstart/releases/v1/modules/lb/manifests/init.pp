# Load balancer over the web nodes, in round-robin order.
class lb (
  Integer $port,
  Integer[1] $web_count,
  Array[String] $web_addresses,
  Integer $web_port,
) {
  muster::require_active('web', $web_count)

  listener { 'lb':
    port   => $port,
    source => 'puppet:///modules/lb/lb.rb',
    config => {
      'web'      => $web_addresses,
      'web_port' => $web_port,
    },
  }
}
