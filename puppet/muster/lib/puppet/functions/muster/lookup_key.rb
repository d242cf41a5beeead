# frozen_string_literal: true

# __FILE__ and not require_relative: Puppet evaluates this text, and the module is found through the modulepath alone.
require File.expand_path('../../../puppet_x/muster/lookups', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# Hiera 5 backend over the snapshot that muster-agent writes before each run. In hiera.yaml:
#
#     hierarchy:
#       - {name: muster, lookup_key: muster::lookup_key}
#
# Keys: `etcdlookup::active_roles::<role>` gives {node => {interface => address}},
# `etcdlookup::active_roles::<role>::<interface>` the list of addresses. What comes out of the store is data: it is never
# interpolated.
Puppet::Functions.create_function(:'muster::lookup_key') do
  dispatch :lookup_key do
    param 'Variant[String, Numeric]', :key
    param 'Hash', :options
    param 'Puppet::LookupContext', :context
  end

  def lookup_key(key, _options, context)
    prefix, separator, wanted = key.to_s.partition('::')
    context.not_found unless prefix == 'etcdlookup' && !separator.empty?

    PuppetX::Muster::Lookups.record(wanted)
    found = find(PuppetX::Muster::Snapshot.current, wanted)
    context.not_found if found.nil?
    context.explain { "#{key} comes from the snapshot of this run" }
    found
  end

  def find(snapshot, wanted)
    table, role, interface, *rest = wanted.split('::', -1)
    return nil unless table == 'active_roles' && role && rest.empty?

    interface ? snapshot.addresses(role, interface) : snapshot.active(role)
  end
end
