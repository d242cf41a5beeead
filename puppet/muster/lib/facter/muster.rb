# frozen_string_literal: true

# The names of this node in Muster, for hierarchies: `path: "roles/%{facts.muster.role}.yaml"`. There is no such fact when
# Puppet is run by hand without the variables that muster-agent sets.
Facter.add(:muster) do
  setcode do
    names = %w[env node host certname role version]
    fact = names.to_h { |name| [name, ENV["MUSTER_#{name.upcase}"]] }
    fact unless fact.value?(nil)
  end
end

# Facts are the first files of a module that Puppet loads, before it compiles and applies the catalog.
if defined?(Puppet) && ENV.key?('MUSTER_REPORT_FILE')
  require File.expand_path('../puppet_x/muster/corrective_changes', File.dirname(__FILE__))
  PuppetX::Muster::CorrectiveChanges.enable
end
