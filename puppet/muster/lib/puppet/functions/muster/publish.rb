# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/published', File.dirname(__FILE__))

# Publishes plain data for the other nodes of the environment. They find it as `etcdlookup::published::<key>`, which gives
# {node => value} of all nodes that publish the key. It is there once this run has been carried out, and until a run of this
# node no longer publishes it, or the node goes. A node may publish 4096 bytes in all.
#
#     muster::publish('db::binlog', { 'file' => 'bin.000042', 'position' => 1337 })
Puppet::Functions.create_function(:'muster::publish') do
  dispatch :publish do
    # No dots: Hiera would take them for a step into the value.
    param 'Pattern[/\A[A-Za-z_][\w-]*(::[A-Za-z_][\w-]*)*\z/]', :key
    param 'Any', :value
  end

  def publish(key, value)
    PuppetX::Muster::Published.add(key, value)
    nil
  end
end
