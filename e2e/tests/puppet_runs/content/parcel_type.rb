Puppet::Type.newtype(:parcel) do
  @doc = 'Something that is installed in a version, as a package is, into a directory.'

  newparam(:name, namevar: true)
  newparam(:directory)

  newproperty(:ensure) do
    desc 'The version, or absent.'
    newvalue(:absent)
    newvalue(/\A\d[\d.]*\z/)
  end

  autorequire(:file) { [self[:directory]] }
end
