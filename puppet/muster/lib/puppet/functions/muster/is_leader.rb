# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/lookups', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# True if this node is the leader of a role. False if the role has no leader.
#
#     if muster::is_leader('db') { include db::primary }
Puppet::Functions.create_function(:'muster::is_leader') do
  dispatch :leader? do
    param 'Pattern[/\A[a-z]([a-z0-9-]*[a-z])?\z/]', :role
    return_type 'Boolean'
  end

  def leader?(role)
    PuppetX::Muster::Lookups.record("leader::#{role}")
    snapshot = PuppetX::Muster::Snapshot.current
    leader = snapshot.leader(role)
    !leader.nil? && leader['node'] == snapshot.fetch('node')
  end
end
