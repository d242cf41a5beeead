# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/lookups', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/pending', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# Returns the leader of a role: node, host, epoch and interfaces ({name => address}). The epoch grows with every new leader
# and can be used as a fencing token. Without a leader the run is pending: nothing is applied, and the node runs again when
# there is one.
#
#     $primary = muster::leader('db')['interfaces']['eth0']
Puppet::Functions.create_function(:'muster::leader') do
  dispatch :leader do
    param 'Pattern[/\A[a-z]([a-z0-9-]*[a-z])?\z/]', :role
    return_type 'Hash[String, Any]'
  end

  def leader(role)
    PuppetX::Muster::Lookups.record("leader::#{role}")
    snapshot = PuppetX::Muster::Snapshot.current
    leader = snapshot.leader(role)
    return leader if leader

    message = "waiting for a leader of role #{role}"
    message += " (environment #{snapshot.fetch('env')} has no such role)" if snapshot.active(role).nil?
    PuppetX::Muster::Pending.stop({ kind: 'leader', role: role }, message)
  end
end
