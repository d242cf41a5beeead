# frozen_string_literal: true

require File.expand_path('../../../puppet_x/muster/lookups', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/pending', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# Returns the values that nodes publish under a key, {node => value}. With fewer than `wanted` nodes the run is pending:
# nothing is applied, and the node runs again when the published values of the key change.
#
#     $binlogs = muster::require_published('db::binlog')
Puppet::Functions.create_function(:'muster::require_published') do
  dispatch :require_published do
    param 'Pattern[/\A[A-Za-z_][\w-]*(::[A-Za-z_][\w-]*)*\z/]', :key
    optional_param 'Integer[0]', :wanted
    return_type 'Hash[String, Any]'
  end

  def require_published(key, wanted = 1)
    PuppetX::Muster::Lookups.record("published::#{key}")
    published = PuppetX::Muster::Snapshot.current.published(key)
    have = published.size
    return published if have >= wanted

    PuppetX::Muster::Pending.stop(
      { kind: 'published', key: key, want: wanted, have: have },
      "waiting for #{key}: #{have} of #{wanted} nodes publish it"
    )
  end
end
