# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/published', File.dirname(__FILE__))

# Publishes plain data to the other nodes of the environment. They look it up as `muster::published::<key>`, which
# returns {node => value} of all nodes that publish the key. It is available when this run has succeeded, until a run of
# this node no longer publishes it, or the node is removed. A node may publish at most 4096 bytes.
#
#     muster::publish('db::binlog', { 'file' => 'bin.000042', 'position' => 1337 })
Puppet::Functions.create_function(:'muster::publish') do
  dispatch :publish do
    # No dots: Hiera would dig into the value at a dot.
    param 'Pattern[/\A[A-Za-z_][\w-]*(::[A-Za-z_][\w-]*)*\z/]', :key
    param 'Any', :value
  end

  def publish(key, value)
    PuppetX::Muster::Published.add(key, value)
    nil
  end
end
