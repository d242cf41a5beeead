# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/run_file', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# Returns facts about this node: env, node, host, role, version, interfaces ({name => address}), root (the
# directory for the files of releases) and release (the directory of the release). Nothing is recorded as looked up,
# because a change of these facts starts a run anyway.
#
#     $address = muster::self()['interfaces']['eth0']
Puppet::Functions.create_function(:'muster::self') do
  dispatch :self_ do
    return_type 'Hash[String, Any]'
  end

  def self_
    snapshot = PuppetX::Muster::Snapshot.current
    %w[env node host role version interfaces].to_h { |name| [name, snapshot.fetch(name)] }.merge(
      'root' => PuppetX::Muster::RunFile.path('MUSTER_ROOT'),
      'release' => PuppetX::Muster::RunFile.path('MUSTER_RELEASE')
    )
  end
end
