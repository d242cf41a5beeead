# frozen_string_literal: true

require 'json'
require File.expand_path('../../../puppet_x/muster/plain_data', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/run_file', File.dirname(__FILE__))

# For `muster-agent lookup`: looks up the key in MUSTER_LOOKUP_KEY as `lookup()` does, and writes the value and the
# explanation to the file in MUSTER_LOOKUP_FILE.
Puppet::Functions.create_function(:'muster::explain_lookup', Puppet::Functions::InternalFunction) do
  dispatch :explain_lookup do
    scope_param
  end

  def explain_lookup(scope)
    key = PuppetX::Muster::RunFile.path('MUSTER_LOOKUP_KEY')
    explainer = Puppet::Pops::Lookup::Explainer.new
    invocation = Puppet::Pops::Lookup::Invocation.new(scope, {}, {}, explainer)
    none = +'no value'
    value = Puppet::Pops::Lookup.lookup(key, nil, none, true, nil, invocation)
    found = !value.equal?(none)
    answer = {
      'found' => found,
      'value' => found ? value : nil,
      'explanation' => explainer.explain,
      'steps' => explainer.to_hash,
    }
    PuppetX::Muster::RunFile.replace('MUSTER_LOOKUP_FILE', JSON.generate(PuppetX::Muster::PlainData.from(answer)))
    nil
  end
end
