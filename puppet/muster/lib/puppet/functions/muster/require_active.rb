# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/lookups', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/pending', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# Returns the active nodes of a role, {node => {interface => address}}. With fewer than `wanted` nodes the run is pending:
# nothing is applied, and the node runs again when the active nodes of the role change.
#
#     $dbs = muster::require_active('db', 2)
Puppet::Functions.create_function(:'muster::require_active') do
  dispatch :require_active do
    param 'Pattern[/\A[a-z]([a-z0-9-]*[a-z])?\z/]', :role
    optional_param 'Integer[0]', :wanted
    return_type 'Hash[String, Hash]'
  end

  def require_active(role, wanted = 1)
    PuppetX::Muster::Lookups.record("active_roles::#{role}")
    snapshot = PuppetX::Muster::Snapshot.current
    active = snapshot.active(role)
    have = active.to_h.size
    return active.to_h if have >= wanted

    message = "waiting for role #{role}: #{have} of #{wanted} active"
    # The role may be added to the design later, so this waits too. The message makes a misspelled role easy to find.
    message += " (environment #{snapshot.fetch('env')} has no such role)" if active.nil?
    PuppetX::Muster::Pending.stop({ kind: 'role', role: role, want: wanted, have: have }, message)
  end
end
